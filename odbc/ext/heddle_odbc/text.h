// Text between Ruby (UTF-8) and the wide functions of ODBC (UTF-16 in the machine's byte order).
#ifndef HEDDLE_ODBC_TEXT_H
#define HEDDLE_ODBC_TEXT_H

#include "buffer.h"

// Appends valid UTF-8 as UTF-16; false when there is no memory.
bool odbc_append_wide(struct odbc_buffer *, const char *from, size_t length);

// Appends UTF-16 as UTF-8, a lone surrogate as U+FFFD; false when there is no memory. `units`: numbers of two bytes.
bool odbc_append_narrow(struct odbc_buffer *, const uint16_t *from, size_t units);

// Writes UTF-16 as UTF-8 to `to`, which has room for three bytes a unit. Returns the bytes written.
size_t odbc_narrow(char *to, const uint16_t *from, size_t units);

#endif
