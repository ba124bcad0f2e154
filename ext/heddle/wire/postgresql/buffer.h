// The bytes that a caller sends. The caller's own function makes the buffer grow, so that nothing is allocated here. A
// refused write leaves the buffer unchanged, and its result names the reason.
#ifndef HEDDLE_WIRE_POSTGRESQL_BUFFER_H
#define HEDDLE_WIRE_POSTGRESQL_BUFFER_H

#include "wire/postgresql/numbers.h"

enum pg_written {
    PG_WRITTEN,
    PG_NO_ROOM,             // the buffer did not grow
    PG_NUL_IN_STRING,       // strings end with NUL, and cannot contain NUL
    PG_TOO_LONG,            // a value or message that is longer than the server accepts
    PG_TOO_MANY_PARAMETERS, // more than PG_PARAMETERS_MOST
    PG_FORMATS_DIFFER,      // the number of formats must be 0, 1 or that of the values
    PG_COUNT_DIFFERS,       // more or fewer values than were announced
    PG_OUT_OF_RANGE,        // the type cannot hold this value
    PG_MALFORMED,           // malformed text of a number, an address, …
    PG_UNKNOWN_NAME         // a named placeholder without a value
};

enum {
    PG_PARAMETERS_MOST = 65535,
    // The server allocates at most 1 GiB - 1 bytes (MaxAllocSize in its source), for a message and for a value.
    PG_MESSAGE_MOST = 0x3ffffffe
};

struct pg_buffer {
    uint8_t *at;
    size_t length, capacity;
    // Makes `room` bytes after `length`. May move `at`, return false, or leave by longjmp, in which case the caller of
    // the writing function restores `length`. NULL for a buffer of fixed size.
    bool (*grow)(struct pg_buffer *buffer, size_t room);
};

static inline bool pg_reserve(struct pg_buffer *buffer, size_t room)
{
    if (buffer->capacity - buffer->length >= room) return true;
    return buffer->grow && buffer->grow(buffer, room);
}

static inline enum pg_written pg_put_8(struct pg_buffer *buffer, uint8_t number)
{
    if (!pg_reserve(buffer, 1)) return PG_NO_ROOM;
    buffer->at[buffer->length++] = number;
    return PG_WRITTEN;
}

static inline enum pg_written pg_put_16(struct pg_buffer *buffer, uint16_t number)
{
    if (!pg_reserve(buffer, 2)) return PG_NO_ROOM;
    pg_store_16(buffer->at + buffer->length, number);
    buffer->length += 2;
    return PG_WRITTEN;
}

static inline enum pg_written pg_put_32(struct pg_buffer *buffer, uint32_t number)
{
    if (!pg_reserve(buffer, 4)) return PG_NO_ROOM;
    pg_store_32(buffer->at + buffer->length, number);
    buffer->length += 4;
    return PG_WRITTEN;
}

static inline enum pg_written pg_put_64(struct pg_buffer *buffer, uint64_t number)
{
    if (!pg_reserve(buffer, 8)) return PG_NO_ROOM;
    pg_store_64(buffer->at + buffer->length, number);
    buffer->length += 8;
    return PG_WRITTEN;
}

static inline enum pg_written pg_put_bytes(struct pg_buffer *buffer, const void *bytes, size_t length)
{
    if (!pg_reserve(buffer, length)) return PG_NO_ROOM;
    if (length) memcpy(buffer->at + buffer->length, bytes, length);
    buffer->length += length;
    return PG_WRITTEN;
}

// Adds the final NUL.
static inline enum pg_written pg_put_string(struct pg_buffer *buffer, struct pg_span string)
{
    if (string.length > PG_MESSAGE_MOST) return PG_TOO_LONG;
    if (string.length && memchr(string.at, 0, string.length)) return PG_NUL_IN_STRING;
    if (!pg_reserve(buffer, string.length + 1)) return PG_NO_ROOM;
    if (string.length) memcpy(buffer->at + buffer->length, string.at, string.length);
    buffer->length += string.length;
    buffer->at[buffer->length++] = 0;
    return PG_WRITTEN;
}

// ---- values: a length of four bytes, then the value. Parameters, elements of arrays, fields of composites and of COPY
// have this form.
//
//   size_t begin;
//   written = pg_value_begin(&buffer, &begin);
//   if (!written) written = pg_put_numeric(&buffer, text);
//   if (!written) written = pg_value_end(&buffer, begin);

// Leaves room for the length.
static inline enum pg_written pg_value_begin(struct pg_buffer *buffer, size_t *begin)
{
    *begin = buffer->length;
    return pg_put_32(buffer, 0);
}

// Writes the length of everything put since pg_value_begin.
static inline enum pg_written pg_value_end(struct pg_buffer *buffer, size_t begin)
{
    size_t length = buffer->length - begin - 4;
    if (length > PG_MESSAGE_MOST) {
        buffer->length = begin;
        return PG_TOO_LONG;
    }
    pg_store_32(buffer->at + begin, (uint32_t)length);
    return PG_WRITTEN;
}

static inline enum pg_written pg_put_null(struct pg_buffer *buffer)
{
    return pg_put_32(buffer, UINT32_MAX);
}

// Puts a whole value; a span without `at` is NULL.
static inline enum pg_written pg_put_value(struct pg_buffer *buffer, struct pg_span value)
{
    if (!value.at) return pg_put_null(buffer);
    if (value.length > PG_MESSAGE_MOST) return PG_TOO_LONG;
    if (!pg_reserve(buffer, 4 + value.length)) return PG_NO_ROOM;
    pg_store_32(buffer->at + buffer->length, (uint32_t)value.length);
    if (value.length) memcpy(buffer->at + buffer->length + 4, value.at, value.length);
    buffer->length += 4 + value.length;
    return PG_WRITTEN;
}

#endif
