// Text that a database server sent: for values that are names, and for messages, which people read on a terminal.
#ifndef HEDDLE_DB_SERVER_TEXT_H
#define HEDDLE_DB_SERVER_TEXT_H

#include "heddle.h"

#include <ruby/encoding.h>

// The server's text in that encoding, converted to UTF-8; invalid bytes are replaced. Binary text is taken for UTF-8.
VALUE server_utf8(const char *bytes, size_t length, rb_encoding *encoding);

// Like server_utf8, for messages: shows control characters as \\xNN, and at most the first 1 MiB.
VALUE server_text(const char *bytes, size_t length, rb_encoding *encoding);

#endif
