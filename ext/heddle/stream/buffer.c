#include "stream/buffer.h"

#include <string.h>

static void move_to_start(struct stream_buffer *buffer)
{
    size_t used = buffer_used(buffer);
    if (used) memmove(buffer->bytes, buffer_front(buffer), used);
    buffer->start = 0;
    buffer->end = used;
}

uint8_t *buffer_room(struct stream_buffer *buffer, size_t room)
{
    if (buffer_free_room(buffer) >= room && buffer->bytes) return buffer->bytes + buffer->end;
    size_t used = buffer_used(buffer);
    if (room > SIZE_MAX / 4 - used) rb_raise(rb_eNoMemError, "a stream's buffer cannot hold %zu more bytes", room);
    // Moving costs little if few bytes are left, and then makes room for long.
    if (buffer->capacity >= used + room && used <= buffer->capacity / 2) {
        move_to_start(buffer);
        return buffer->bytes + buffer->end;
    }
    size_t capacity = buffer->capacity ? buffer->capacity : BUFFER_FIRST;
    while (capacity < used + room)
        capacity *= 2;
    if (capacity == buffer->capacity) {
        move_to_start(buffer);
        return buffer->bytes + buffer->end;
    }
    uint8_t *bytes = xmalloc(capacity);
    if (used) memcpy(bytes, buffer_front(buffer), used);
    xfree(buffer->bytes);
    *buffer = (struct stream_buffer){.bytes = bytes, .end = used, .capacity = capacity};
    return bytes + used;
}

void buffer_append(struct stream_buffer *buffer, const void *bytes, size_t length)
{
    if (length == 0) return;
    memcpy(buffer_room(buffer, length), bytes, length);
    buffer->end += length;
}

void buffer_consume(struct stream_buffer *buffer, size_t count)
{
    HEDDLE_ASSERT(count <= buffer_used(buffer));
    buffer->start += count;
    if (buffer->start < buffer->end) return;
    buffer->start = buffer->end = 0;
    if (buffer->capacity > BUFFER_KEEP) buffer_release(buffer);
}

void buffer_release(struct stream_buffer *buffer)
{
    xfree(buffer->bytes);
    memset(buffer, 0, sizeof(*buffer));
}
