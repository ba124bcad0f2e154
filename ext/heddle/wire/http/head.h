// Parses HTTP/1 exactly as leniently as Net::HTTP does, expression by expression, so that no program sees a difference.
// Plain C over spans of bytes, without ruby.h; allocates nothing and keeps nothing.
#ifndef HEDDLE_WIRE_HTTP_HEAD_H
#define HEDDLE_WIRE_HTTP_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct wire_http_span {
    const uint8_t *at; // NULL: absent, which differs from empty
    size_t length;
};

struct wire_http_status {
    struct wire_http_span version; // "1.1"
    struct wire_http_span code;    // three digits
    struct wire_http_span message;
};

// Parses a line without its end. False: not a status line.
bool wire_http_status_line(const uint8_t *p, const uint8_t *end, struct wire_http_status *status);

enum wire_http_line {
    HTTP_LINE_END,          // the empty line after the last field
    HTTP_LINE_FIELD,        // name and value
    HTTP_LINE_CONTINUATION, // value: the continuation of a folded field, may be empty
    HTTP_LINE_INVALID
};

struct wire_http_field {
    struct wire_http_span name;
    struct wire_http_span value;
    // Passes every check of Net::HTTPHeader: no CR or LF, no control characters in the name, of modest length.
    bool plain;
};

// Parses a line with its "\n", or the rest before the end of the file. `blank_ends`: white space alone ends the head,
// as in net-http before 0.10. `follows`: there is a field that a folded line can continue.
enum wire_http_line wire_http_header_line(const uint8_t *p, const uint8_t *end, bool blank_ends, bool follows,
                                          struct wire_http_field *field);

// Parses a line without its end: the first run of hexadecimal digits, wherever it stands. A number too large for the
// type becomes UINT64_MAX. False if there are no digits.
bool wire_http_chunk_size(const uint8_t *p, const uint8_t *end, uint64_t *size);

// The length of a line after String#chop: without "\r\n", or without its last byte.
size_t wire_http_chopped(const uint8_t *p, size_t length);

// Writes the name as Net::HTTPHeader#capitalize does, at most `length` bytes. Returns the number of bytes. ASCII only.
size_t wire_http_capitalize(const uint8_t *name, size_t length, uint8_t *out);

// Parses a number of 1 to 18 digits. False for anything else.
bool wire_http_plain_number(const uint8_t *p, const uint8_t *end, uint64_t *number);

// Returns whether any byte is above 127.
bool wire_http_any_high(const uint8_t *p, size_t length);

#endif
