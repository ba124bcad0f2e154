#include "wire/postgresql/values_numeric.h"

enum { BASE = 10000, BASE_DIGITS = 4, HEAD = 8 };

bool pg_read_numeric(struct pg_span value, struct pg_numeric *numeric)
{
    if (value.length < HEAD) return false;
    numeric->count = pg_load_16(value.at);
    numeric->weight = (int16_t)pg_load_16(value.at + 2);
    uint16_t sign = pg_load_16(value.at + 4);
    numeric->scale = pg_load_16(value.at + 6);
    numeric->digits = value.at + HEAD;
    numeric->sign = (enum pg_numeric_sign)sign;
    if (value.length - HEAD != 2 * (size_t)numeric->count) return false;
    if (sign == PG_NUMERIC_NAN || sign == PG_NUMERIC_INFINITY || sign == PG_NUMERIC_MINUS_INFINITY)
        return numeric->count == 0;
    if ((sign != PG_NUMERIC_POSITIVE && sign != PG_NUMERIC_NEGATIVE) || numeric->scale > PG_NUMERIC_SCALE_MOST)
        return false;
    for (uint16_t i = 0; i < numeric->count; i++)
        if (pg_load_16(numeric->digits + 2 * (size_t)i) >= BASE) return false;
    return true;
}

// ---- to text

size_t pg_numeric_text_most(const struct pg_numeric *numeric)
{
    if (numeric->sign != PG_NUMERIC_POSITIVE && numeric->sign != PG_NUMERIC_NEGATIVE) return sizeof "-Infinity";
    size_t whole = numeric->weight < 0 ? 1 : ((size_t)numeric->weight + 1) * BASE_DIGITS;
    // The fraction is written in steps of four digits.
    return 1 + whole + 1 + numeric->scale + BASE_DIGITS;
}

// The digit at this many places behind the first.
static unsigned digit_at(const struct pg_numeric *numeric, int32_t place)
{
    return place < 0 || place >= numeric->count ? 0 : pg_load_16(numeric->digits + 2 * (size_t)place);
}

static char *put_four(char *at, unsigned digit)
{
    at[0] = (char)('0' + digit / 1000);
    at[1] = (char)('0' + digit / 100 % 10);
    at[2] = (char)('0' + digit / 10 % 10);
    at[3] = (char)('0' + digit % 10);
    return at + 4;
}

size_t pg_numeric_text(const struct pg_numeric *numeric, char *text)
{
    const char *word = numeric->sign == PG_NUMERIC_NAN              ? "NaN"
                       : numeric->sign == PG_NUMERIC_INFINITY       ? "Infinity"
                       : numeric->sign == PG_NUMERIC_MINUS_INFINITY ? "-Infinity"
                                                                    : NULL;
    if (word) {
        memcpy(text, word, strlen(word));
        return strlen(word);
    }
    char *at = text;
    if (numeric->sign == PG_NUMERIC_NEGATIVE) *at++ = '-';
    char *whole = at;
    for (int32_t place = 0; place <= numeric->weight; place++) {
        unsigned digit = digit_at(numeric, place);
        if (at > whole) {
            at = put_four(at, digit);
        } else if (digit > 0) {
            char four[4];
            put_four(four, digit);
            int zeros = digit < 10 ? 3 : digit < 100 ? 2 : digit < 1000 ? 1 : 0;
            memcpy(at, four + zeros, (size_t)(4 - zeros));
            at += 4 - zeros;
        }
    }
    if (at == whole) *at++ = '0';
    if (numeric->scale == 0) return (size_t)(at - text);
    *at++ = '.';
    char *end = at + numeric->scale;
    for (int32_t place = numeric->weight + 1; at < end; place++)
        at = put_four(at, digit_at(numeric, place));
    return (size_t)(end - text);
}

// ---- from text

static bool same_word(const uint8_t *p, const uint8_t *end, const char *word)
{
    if ((size_t)(end - p) != strlen(word)) return false;
    for (; p < end; p++, word++)
        if ((*p | 0x20) != (uint8_t)*word) return false;
    return true;
}

static enum pg_written put_head(struct pg_buffer *buffer, size_t count, int32_t weight, uint16_t sign, size_t scale)
{
    if (!pg_reserve(buffer, HEAD + 2 * count)) return PG_NO_ROOM;
    pg_put_16(buffer, (uint16_t)count);
    pg_put_16(buffer, (uint16_t)weight);
    pg_put_16(buffer, sign);
    return pg_put_16(buffer, (uint16_t)scale);
}

static bool values_numeric_is_digit(uint8_t byte)
{
    return byte >= '0' && byte <= '9';
}

// A parsed text: its digits, and how many of them stand before the point after the exponent has moved it.
struct decimal {
    const uint8_t *p, *end; // digits, and at most one point
    int64_t before, behind;
    bool negative;
};

static enum pg_written parse(struct pg_span text, struct decimal *decimal)
{
    enum { EXPONENT_MOST = 1000000 };
    const uint8_t *p = text.at, *end = text.at + text.length;
    if (p < end && (*p == '-' || *p == '+')) decimal->negative = *p++ == '-';
    decimal->p = p;
    bool point = false;
    for (; p < end && (values_numeric_is_digit(*p) || (*p == '.' && !point)); p++) {
        if (*p == '.') {
            point = true;
        } else if (point) {
            decimal->behind++;
        } else {
            decimal->before++;
        }
    }
    decimal->end = p;
    if (decimal->before + decimal->behind == 0) return PG_MALFORMED;
    if (p == end) return PG_WRITTEN;
    if (*p != 'e' && *p != 'E') return PG_MALFORMED;
    p++;
    bool negative = false;
    if (p < end && (*p == '-' || *p == '+')) negative = *p++ == '-';
    if (p == end) return PG_MALFORMED;
    int64_t exponent = 0;
    for (; p < end; p++) {
        if (!values_numeric_is_digit(*p)) return PG_MALFORMED;
        if (exponent < EXPONENT_MOST) exponent = exponent * 10 + (*p - '0');
    }
    if (negative) exponent = -exponent;
    decimal->before += exponent;
    decimal->behind -= exponent;
    return PG_WRITTEN;
}

// Rounds down, unlike / below zero.
static int64_t floor_div(int64_t number, int64_t by)
{
    return number >= 0 ? number / by : -((-number + by - 1) / by);
}

enum pg_written pg_put_numeric(struct pg_buffer *buffer, struct pg_span text)
{
    const uint8_t *p = text.at, *end = text.at + text.length;
    if (same_word(p, end, "nan")) return put_head(buffer, 0, 0, PG_NUMERIC_NAN, 0);
    bool minus = p < end && *p == '-';
    const uint8_t *word = p + (p < end && (*p == '-' || *p == '+'));
    if (same_word(word, end, "infinity") || same_word(word, end, "inf"))
        return put_head(buffer, 0, 0, minus ? PG_NUMERIC_MINUS_INFINITY : PG_NUMERIC_INFINITY, 0);
    struct decimal decimal = {0};
    enum pg_written written = parse(text, &decimal);
    if (written) return written;
    size_t scale = decimal.behind > 0 ? (size_t)decimal.behind : 0;
    if (scale > PG_NUMERIC_SCALE_MOST) return PG_OUT_OF_RANGE;
    // The places of the first and the last digit that is not 0; units have place 0, tenths -1.
    int64_t place = decimal.before - 1, first = INT64_MIN, last = 0;
    for (p = decimal.p; p < decimal.end; p++) {
        if (*p == '.') continue;
        if (*p != '0') {
            if (first == INT64_MIN) first = place;
            last = place;
        }
        place--;
    }
    if (first == INT64_MIN) return put_head(buffer, 0, 0, PG_NUMERIC_POSITIVE, scale);
    int64_t weight = floor_div(first, BASE_DIGITS), count = weight - floor_div(last, BASE_DIGITS) + 1;
    if (weight > INT16_MAX || weight < INT16_MIN || count > UINT16_MAX) return PG_OUT_OF_RANGE;
    written = put_head(buffer, (size_t)count, (int32_t)weight,
                       decimal.negative ? PG_NUMERIC_NEGATIVE : PG_NUMERIC_POSITIVE, scale);
    if (written) return written;
    uint8_t *digits = buffer->at + buffer->length;
    memset(digits, 0, 2 * (size_t)count);
    static const uint16_t powers[BASE_DIGITS] = {1, 10, 100, 1000};
    place = decimal.before - 1;
    for (p = decimal.p; p < decimal.end && place >= last; p++) {
        if (*p == '.') continue;
        if (*p != '0') {
            int64_t group = floor_div(place, BASE_DIGITS);
            uint8_t *digit = digits + 2 * (weight - group);
            pg_store_16(digit, (uint16_t)(pg_load_16(digit) + (*p - '0') * powers[place - group * BASE_DIGITS]));
        }
        place--;
    }
    buffer->length += 2 * (size_t)count;
    return PG_WRITTEN;
}
