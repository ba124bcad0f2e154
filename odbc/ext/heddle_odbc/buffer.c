#include "buffer.h"

#include <stdlib.h>
#include <string.h>

enum { LEAST = 256 };

bool odbc_buffer_reserve(struct odbc_buffer *buffer, size_t count)
{
    if (count > SIZE_MAX / 2 - buffer->length) return false;
    size_t needed = buffer->length + count, capacity = buffer->capacity ? buffer->capacity : LEAST;
    if (needed <= buffer->capacity) return true;
    while (capacity < needed)
        capacity *= 2;
    char *at = realloc(buffer->at, capacity);
    if (!at) return false;
    buffer->at = at;
    buffer->capacity = capacity;
    return true;
}

bool odbc_buffer_append(struct odbc_buffer *buffer, const void *from, size_t count)
{
    if (!odbc_buffer_reserve(buffer, count)) return false;
    if (count > 0) memcpy(buffer->at + buffer->length, from, count);
    buffer->length += count;
    return true;
}

bool odbc_buffer_align(struct odbc_buffer *buffer)
{
    static const char zeros[8];
    return odbc_buffer_append(buffer, zeros, (8 - buffer->length % 8) % 8);
}

void odbc_buffer_free(struct odbc_buffer *buffer)
{
    free(buffer->at);
    *buffer = (struct odbc_buffer){0};
}
