// The decimal digits of numbers, for the text forms of COPY.
#ifndef HEDDLE_WIRE_POSTGRESQL_DIGITS_H
#define HEDDLE_WIRE_POSTGRESQL_DIGITS_H

#include <stddef.h>
#include <stdint.h>

enum { PG_DIGITS_MOST = 24 }; // bytes of any number below

// Writes the number, and returns how many bytes it takes.
size_t pg_integer_digits(int64_t number, uint8_t out[PG_DIGITS_MOST]);

// Writes the shortest digits that are read back as this very number, as Ruby's Float#to_s has them: 0.125, -3.0.
// Returns how many bytes they take; 0 for a number that it does not know how to write: one with an exponent or with
// more than 15 digits or nine decimals, NaN and the infinities.
size_t pg_float_digits(double number, uint8_t out[PG_DIGITS_MOST]);

#endif
