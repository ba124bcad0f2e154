// A contiguous buffer: bytes are taken from the front and added at the end. Its memory is reused, and freed when it has
// grown large. C owns it: Ruby neither moves nor changes it while a fiber waits.
#ifndef HEDDLE_STREAM_BUFFER_H
#define HEDDLE_STREAM_BUFFER_H

#include "heddle.h"

enum {
    BUFFER_FIRST = 16 << 10, // initial size in bytes
    BUFFER_KEEP = 64 << 10   // an empty buffer larger than this is freed
};

struct stream_buffer {
    uint8_t *bytes;
    size_t start, end; // the range in use
    size_t capacity;
};

static inline size_t buffer_used(const struct stream_buffer *buffer)
{
    return buffer->end - buffer->start;
}

static inline uint8_t *buffer_front(const struct stream_buffer *buffer)
{
    return buffer->bytes + buffer->start;
}

// Makes room for `room` bytes at the end, and returns their address. The buffer's bytes may move. Raises NoMemoryError
// before anything has changed.
uint8_t *buffer_room(struct stream_buffer *buffer, size_t room);

static inline size_t buffer_free_room(const struct stream_buffer *buffer)
{
    return buffer->capacity - buffer->end;
}

void buffer_append(struct stream_buffer *buffer, const void *bytes, size_t length);

// Removes `count` bytes, which must be there, from the front.
void buffer_consume(struct stream_buffer *buffer, size_t count);

void buffer_release(struct stream_buffer *buffer);

#endif
