// Throws numbers at wire/postgresql/digits.c, alone, under sanitizers; see fuzz.h. An input is the bytes of an
// integer and of a float, or the decimal digits of a float. Their digits are read back, and have to be the same number.
#include "wire/postgresql/digits.h"

#include "fuzz.h"

#include <math.h>

static void try_integer(int64_t number)
{
    uint8_t *digits = malloc(PG_DIGITS_MOST);
    char text[PG_DIGITS_MOST + 1] = {0}, expected[PG_DIGITS_MOST + 8];
    size_t length = pg_integer_digits(number, digits);
    check(length > 0 && length <= PG_DIGITS_MOST, "the length of an integer");
    memcpy(text, digits, length);
    snprintf(expected, sizeof expected, "%lld", (long long)number);
    check(strcmp(text, expected) == 0, "another integer");
    free(digits);
}

static void try_float(double number)
{
    uint8_t *digits = malloc(PG_DIGITS_MOST);
    char text[PG_DIGITS_MOST + 1] = {0};
    size_t length = pg_float_digits(number, digits);
    check(length <= PG_DIGITS_MOST, "the length of a float");
    check(length == 0 || isfinite(number), "no number has digits");
    if (length > 0) {
        memcpy(text, digits, length);
        double again = strtod(text, NULL);
        check(memcmp(&again, &number, sizeof number) == 0, "another float"); // the sign of zero, too
        const char *unsigned_text = text + (*text == '-'), *point = strchr(text, '.');
        check(point && point[1] && point > unsigned_text, "the place of the point");
        check(strspn(unsigned_text, "0123456789.") == strlen(unsigned_text), "the form of a float");
        check(point[2] == 0 || text[length - 1] != '0', "a digit too many");
    }
    free(digits);
}

static void try_input(const uint8_t *p, const uint8_t *end)
{
    int64_t integer;
    double number;
    char text[32] = {0};
    size_t length = (size_t)(end - p);
    memcpy(text, p, length < sizeof text ? length : sizeof text - 1);
    try_float(strtod(text, NULL));
    try_integer(strtoll(text, NULL, 10));
    for (; end - p >= 8; p += 8) {
        memcpy(&integer, p, 8);
        memcpy(&number, p, 8);
        try_integer(integer);
        try_float(number);
        try_float((double)integer);
        try_float((double)(integer % 1000000000000000) / 1000);
    }
}

int main(int argc, char **argv)
{
    static const char tells[] = "0123456789.-e\0\1\177\200\360\377\100\277";
    return fuzz(argc, argv, tells, sizeof tells - 1, 8);
}
