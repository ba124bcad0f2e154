#include "wire/postgresql/digits.h"

#include <math.h>
#include <string.h>

static size_t pg_put_digits(uint64_t number, unsigned least, uint8_t *out)
{
    uint8_t digits[PG_DIGITS_MOST], *at = digits + sizeof(digits);
    size_t length = 0;
    do {
        *--at = (uint8_t)('0' + number % 10);
        number /= 10;
    } while (++length < least || number);
    memcpy(out, at, length);
    return length;
}

size_t pg_integer_digits(int64_t number, uint8_t out[PG_DIGITS_MOST])
{
    size_t sign = number < 0;
    if (sign) *out = '-';
    return sign + pg_put_digits(sign ? 0 - (uint64_t)number : (uint64_t)number, 1, out + sign);
}

size_t pg_float_digits(double number, uint8_t out[PG_DIGITS_MOST])
{
    static const double powers[] = {1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9};
    double magnitude = fabs(number);
    if (!(magnitude == 0 || (magnitude >= 1e-4 && magnitude < 1e15))) return 0; // Ruby's limit is 1e16, for 16 digits
    for (unsigned decimals = 0; decimals < sizeof(powers) / sizeof(*powers); decimals++) {
        double scaled = magnitude * powers[decimals];
        if (scaled >= 1e15) return 0;
        // Both operands are exact, and a division rounds once, as does a reader of decimal digits: if the quotient is
        // the number, the digits are read back as the number. With up to 15 digits no others of this length are.
        uint64_t whole = (uint64_t)(scaled + 0.5);
        if ((double)whole / powers[decimals] != magnitude) continue;
        size_t sign = signbit(number) != 0;
        if (sign) *out = '-';
        if (decimals == 0) {
            whole *= 10; // 3.0
            decimals = 1;
        }
        size_t length = pg_put_digits(whole, decimals + 1, out + sign);
        uint8_t *point = out + sign + length - decimals;
        memmove(point + 1, point, decimals);
        *point = '.';
        return sign + length + 1;
    }
    return 0;
}
