// numeric in its binary form, and as text. The binary form has digits in base 10,000, the weight of the first digit,
// and a scale: the number of decimal digits after the point (numeric_send and numeric_recv in the server's numeric.c).
#ifndef HEDDLE_WIRE_POSTGRESQL_VALUES_NUMERIC_H
#define HEDDLE_WIRE_POSTGRESQL_VALUES_NUMERIC_H

#include "wire/postgresql/buffer.h"

enum pg_numeric_sign {
    PG_NUMERIC_POSITIVE = 0x0000,
    PG_NUMERIC_NEGATIVE = 0x4000,
    PG_NUMERIC_NAN = 0xc000,
    PG_NUMERIC_INFINITY = 0xd000, // servers since 14
    PG_NUMERIC_MINUS_INFINITY = 0xf000
};

enum { PG_NUMERIC_SCALE_MOST = 0x3fff };

struct pg_numeric {
    enum pg_numeric_sign sign;
    uint16_t count; // of digits
    int16_t weight; // of the first digit: a power of 10,000
    uint16_t scale;
    const uint8_t *digits; // two bytes each
};
bool pg_read_numeric(struct pg_span value, struct pg_numeric *numeric);

// The most room that the text needs: a value of eight bytes may claim some 150,000 bytes.
size_t pg_numeric_text_most(const struct pg_numeric *numeric);
// Writes "-12.50", "NaN", "Infinity" or "-Infinity", without a final NUL. Returns the number of bytes.
size_t pg_numeric_text(const struct pg_numeric *numeric, char *text);

// Parses such a text, also with an exponent or a leading +, in either case. The scale is that of the digits: 1.50 keeps
// its zero. PG_MALFORMED for text that is not a number, PG_OUT_OF_RANGE for more than 131,072 digits before the point
// or 16,383 after it.
enum pg_written pg_put_numeric(struct pg_buffer *buffer, struct pg_span text);

#endif
