// Memory that grows: the only way in which this extension keeps bytes whose number is not known before.
#ifndef HEDDLE_ODBC_BUFFER_H
#define HEDDLE_ODBC_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct odbc_buffer {
    char *at;
    size_t length, capacity;
};

// Makes room for `count` more bytes. Returns false when there is no memory; the buffer is unchanged then. Raises
// nothing, since threads that Ruby does not know call it.
bool odbc_buffer_reserve(struct odbc_buffer *, size_t count);

// Appends bytes; false when there is no memory.
bool odbc_buffer_append(struct odbc_buffer *, const void *from, size_t count);

// Appends zeros up to a multiple of eight, so that any number may follow; false when there is no memory.
bool odbc_buffer_align(struct odbc_buffer *);

void odbc_buffer_free(struct odbc_buffer *);

#endif
