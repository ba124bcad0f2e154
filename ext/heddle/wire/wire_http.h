// HTTP/1 as Net::HTTP reads it: the same leniency, expression by expression, since nobody shall be able to tell. Plain C over
// spans of bytes, without ruby.h; nothing is allocated and nothing is kept.
#ifndef HEDDLE_WIRE_WIRE_HTTP_H
#define HEDDLE_WIRE_WIRE_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct wire_http_span {
    const uint8_t *at; // NULL: not there, which is something else than empty
    size_t length;
};

struct wire_http_status {
    struct wire_http_span version; // "1.1"
    struct wire_http_span code;    // three digits
    struct wire_http_span message;
};

// A line without its end. False: it is no status line.
bool wire_http_status_line(const uint8_t *p, const uint8_t *end, struct wire_http_status *status);

enum wire_http_line {
    HTTP_LINE_END,          // the empty line after the last field
    HTTP_LINE_FIELD,        // name and value
    HTTP_LINE_CONTINUATION, // value: what a folded field goes on with, which may be nothing
    HTTP_LINE_INVALID
};

struct wire_http_field {
    struct wire_http_span name;
    struct wire_http_span value;
    bool
        plain; // nothing in it that Net::HTTPHeader looks at twice: no CR or LF, no odd bytes in the name, of modest length
};

// A line with its "\n", or what is left before the end of the file. `blank_ends`: white space alone ends the head, as
// in net-http before 0.8. `follows`: there is a field that a folded line can go on with.
enum wire_http_line wire_http_header_line(const uint8_t *p, const uint8_t *end, bool blank_ends, bool follows,
                                          struct wire_http_field *field);

// A line without its end: the first run of hexadecimal digits, wherever it stands; what is too large for the type is its
// largest value. False: there is none.
bool wire_http_chunk_size(const uint8_t *p, const uint8_t *end, uint64_t *size);

// The length of a line as String#chop leaves it: without "\r\n", or without its last byte.
size_t wire_http_chopped(const uint8_t *p, size_t length);

// Writes the name as Net::HTTPHeader#capitalize has it, at most `length` bytes, and returns how many. ASCII only.
size_t wire_http_capitalize(const uint8_t *name, size_t length, uint8_t *out);

// Digits alone, at most 18 of them. False for anything else.
bool wire_http_plain_number(const uint8_t *p, const uint8_t *end, uint64_t *number);

// Whether any byte is above 127.
bool wire_http_any_high(const uint8_t *p, size_t length);

#endif
