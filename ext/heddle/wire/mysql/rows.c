#include "wire/mysql/rows.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- dates and times

static const uint8_t month_days[12] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};

static bool leap(uint32_t year)
{
    return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
}

// Servers accept days that no calendar has, such as 0000-00-00: they become NULL. False for values that no server
// accepts.
static bool conclude_moment(struct mysql_value *value, bool date)
{
    const struct mysql_moment *moment = &value->moment;
    if (moment->month > 12 || moment->day > 31 || moment->hour > 23 || moment->minute > 59 || moment->second > 59 ||
        moment->microsecond > 999999 || moment->year > 9999)
        return false;
    bool exists = moment->month >= 1 && moment->day >= 1;
    if (exists && moment->day > 28)
        exists = moment->day <= month_days[moment->month - 1] + (moment->month == 2 && leap(moment->year));
    value->kind = !exists ? MYSQL_IS_NULL : date ? MYSQL_IS_DATE : MYSQL_IS_DATETIME;
    return true;
}

// The algorithm is Howard Hinnant's days_from_civil (howardhinnant.github.io/date_algorithms.html).
int64_t mysql_days(const struct mysql_moment *moment)
{
    // Starts 400 years before the year 0, so that the years of an era count from 0.
    uint32_t year = moment->year + 400u - (moment->month <= 2);
    uint32_t era = year / 400, of_era = year % 400;
    uint32_t of_year = (153 * (moment->month > 2 ? moment->month - 3u : moment->month + 9u) + 2) / 5 + moment->day - 1;
    return (int64_t)(era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year) - 719468 - 146097;
}

static int64_t time_of(bool negative, uint64_t days, uint64_t hours, uint64_t minutes, uint64_t seconds, uint64_t micro)
{
    int64_t all = (int64_t)((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000000 + micro);
    return negative ? -all : all;
}

static bool binary_moment(struct mysql_span span, bool date, struct mysql_value *value)
{
    const uint8_t *p = span.at;
    struct mysql_moment *moment = &value->moment;
    *moment = (struct mysql_moment){0};
    if (span.length != 0 && span.length != 4 && span.length != 7 && span.length != 11) return false;
    if (span.length >= 4) {
        moment->year = (uint16_t)mysql_little(p, 2);
        moment->month = p[2];
        moment->day = p[3];
    }
    if (span.length >= 7) {
        moment->hour = p[4];
        moment->minute = p[5];
        moment->second = p[6];
    }
    if (span.length >= 11) moment->microsecond = (uint32_t)mysql_little(p + 7, 4);
    return conclude_moment(value, date);
}

static bool binary_time(struct mysql_span span, struct mysql_value *value)
{
    const uint8_t *p = span.at;
    if (span.length != 0 && span.length != 8 && span.length != 12) return false;
    value->kind = MYSQL_IS_TIME;
    value->integer = 0;
    if (span.length == 0) return true;
    uint64_t days = mysql_little(p + 1, 4), micro = span.length == 12 ? mysql_little(p + 8, 4) : 0;
    if (p[0] > 1 || days > 999 || p[5] > 23 || p[6] > 59 || p[7] > 59 || micro > 999999) return false;
    value->integer = time_of(p[0], days, p[5], p[6], p[7], micro);
    return true;
}

static bool digits(const uint8_t **p, const uint8_t *end, unsigned least, unsigned most, uint32_t *number)
{
    unsigned count = 0;
    *number = 0;
    for (; count < most && *p < end && **p >= '0' && **p <= '9'; count++)
        *number = *number * 10 + (uint32_t)(*(*p)++ - '0');
    return count >= least;
}

static bool separator(const uint8_t **p, const uint8_t *end, char expected)
{
    if (*p >= end || **p != (uint8_t)expected) return false;
    (*p)++;
    return true;
}

// Parses nothing, or a point and up to six digits.
static bool fraction(const uint8_t **p, const uint8_t *end, uint32_t *microseconds)
{
    *microseconds = 0;
    if (*p == end) return true;
    if (!separator(p, end, '.')) return false;
    const uint8_t *begin = *p;
    if (!digits(p, end, 1, 6, microseconds)) return false;
    for (size_t count = (size_t)(*p - begin); count < 6; count++)
        *microseconds *= 10;
    return *p == end;
}

static bool clock_digits(const uint8_t **p, const uint8_t *end, uint32_t *hour, uint32_t *minute, uint32_t *second,
                         uint32_t *microsecond)
{
    return digits(p, end, 1, 3, hour) && separator(p, end, ':') && digits(p, end, 2, 2, minute) &&
           separator(p, end, ':') && digits(p, end, 2, 2, second) && fraction(p, end, microsecond);
}

static bool text_moment(struct mysql_span span, bool date, struct mysql_value *value)
{
    const uint8_t *p = span.at, *end = span.at + span.length;
    uint32_t year, month, day, hour = 0, minute = 0, second = 0, microsecond = 0;
    if (!digits(&p, end, 4, 4, &year) || !separator(&p, end, '-') || !digits(&p, end, 2, 2, &month) ||
        !separator(&p, end, '-') || !digits(&p, end, 2, 2, &day))
        return false;
    if (p < end && (!separator(&p, end, ' ') || !clock_digits(&p, end, &hour, &minute, &second, &microsecond)))
        return false;
    if (hour > 23) return false;
    value->moment = (struct mysql_moment){.microsecond = microsecond,
                                          .year = (uint16_t)year,
                                          .month = (uint8_t)month,
                                          .day = (uint8_t)day,
                                          .hour = (uint8_t)hour,
                                          .minute = (uint8_t)minute,
                                          .second = (uint8_t)second};
    return conclude_moment(value, date);
}

static bool text_time(struct mysql_span span, struct mysql_value *value)
{
    const uint8_t *p = span.at, *end = span.at + span.length;
    uint32_t hour, minute, second, microsecond;
    bool negative = separator(&p, end, '-');
    if (!clock_digits(&p, end, &hour, &minute, &second, &microsecond) || minute > 59 || second > 59) return false;
    value->kind = MYSQL_IS_TIME;
    value->integer = time_of(negative, 0, hour, minute, second, microsecond);
    return true;
}

// ---- other values

static bool text_integer(struct mysql_span span, bool is_unsigned, struct mysql_value *value)
{
    const uint8_t *p = span.at, *end = span.at + span.length;
    bool negative = separator(&p, end, '-');
    uint64_t number = 0;
    if (p == end || end - p > 255) return false;
    for (; p < end; p++) {
        if (*p < '0' || *p > '9') return false;
        uint64_t digit = (uint64_t)(*p - '0');
        if (number > (UINT64_MAX - digit) / 10) return false;
        number = number * 10 + digit;
    }
    if (is_unsigned) {
        value->kind = MYSQL_IS_UNSIGNED;
        value->unsigned_integer = number;
        return !negative;
    }
    if (number > (uint64_t)INT64_MAX + negative) return false;
    value->kind = MYSQL_IS_INTEGER;
    value->integer = negative ? (int64_t)(~number + 1) : (int64_t)number;
    return true;
}

static bool text_float(struct mysql_span span, struct mysql_value *value)
{
    char copy[512];
    if (span.length == 0 || span.length >= sizeof(copy)) return false;
    for (size_t i = 0; i < span.length; i++) // excludes the other forms that strtod accepts: hexadecimals, words
        if (!memchr("0123456789+-.eE", span.at[i], 15)) return false;
    memcpy(copy, span.at, span.length);
    copy[span.length] = 0;
    char *after;
    value->number = strtod(copy, &after);
    value->kind = MYSQL_IS_FLOAT;
    return after == copy + span.length;
}

static bool bits(struct mysql_span span, struct mysql_value *value)
{
    if (span.length > 8) return false;
    value->kind = MYSQL_IS_UNSIGNED;
    value->unsigned_integer = 0;
    for (size_t i = 0; i < span.length; i++)
        value->unsigned_integer = value->unsigned_integer << 8 | span.at[i];
    return true;
}

static bool decimal(struct mysql_span span, struct mysql_value *value)
{
    size_t digit_count = 0;
    for (size_t i = 0; i < span.length; i++) {
        uint8_t byte = span.at[i];
        if (byte >= '0' && byte <= '9') {
            digit_count++;
        } else if (byte != '.' && (byte != '-' || i > 0)) {
            return false;
        }
    }
    value->kind = MYSQL_IS_DECIMAL;
    return digit_count > 0 && span.length < 256;
}

// The shortest decimal number that rounds to the same single: 1.1, where the single as a double is 1.10000002384185791.
// Any six digits name at most one single, and nine digits suffice for every single. Quotients of whole numbers below 2
// ** 53 and powers of ten up to 10 ** 22 are exact except for one rounding, which parsing the digits has, too.
static double shortest(float single)
{
    static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                    1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    double exact = single, size = fabs(exact);
    if (size < 16777216 && size == floor(size)) return exact;
    if (!isfinite(single)) return exact;
    int exponent = (int)floor(log10(size));
    // Below FLT_MIN a single has fewer bits, so fewer digits may suffice.
    for (int digit_count = size < FLT_MIN ? 1 : 6; digit_count <= 9; digit_count++) {
        int places = digit_count - 1 - exponent;
        double candidate;
        if (places >= 0 && places <= 22) {
            candidate = rint(exact * powers[places]) / powers[places];
        } else if (places < 0 && places >= -22) {
            candidate = rint(exact / powers[-places]) * powers[-places];
        } else {
            char text[32];
            snprintf(text, sizeof(text), "%.*e", digit_count - 1, exact);
            candidate = strtod(text, NULL);
        }
        if ((float)candidate == single) return candidate;
    }
    return exact;
}

static bool floating(struct mysql_row *row, size_t bytes, struct mysql_value *value)
{
    uint64_t number;
    if (!mysql_take(&row->p, row->end, bytes, &number)) return false;
    value->kind = MYSQL_IS_FLOAT;
    if (bytes == 4) {
        uint32_t half = (uint32_t)number;
        float single;
        memcpy(&single, &half, 4);
        value->number = shortest(single);
    } else {
        memcpy(&value->number, &number, 8);
    }
    return true;
}

// Values that both kinds of rows send as a length and bytes.
static bool mysql_bytes_of(struct mysql_row *row, const struct mysql_field *field, struct mysql_value *value)
{
    if (!mysql_string(&row->p, row->end, &value->bytes)) return false;
    value->kind = MYSQL_IS_BYTES;
    if (field->type == MYSQL_DECIMAL || field->type == MYSQL_NEWDECIMAL) return decimal(value->bytes, value);
    if (field->type == MYSQL_BIT) return bits(value->bytes, value);
    return true;
}

bool mysql_row_text(struct mysql_row *row, const struct mysql_field *field, struct mysql_value *value)
{
    if (row->p < row->end && *row->p == 0xfb) {
        row->p++;
        value->kind = MYSQL_IS_NULL;
        return true;
    }
    if (!mysql_bytes_of(row, field, value)) return false;
    struct mysql_span span = value->bytes;
    switch (field->type) {
    case MYSQL_TINY:
        if (!text_integer(span, field->is_unsigned, value)) return false;
        if (field->is_boolean) value->kind = MYSQL_IS_BOOLEAN;
        return true;
    case MYSQL_SHORT:
    case MYSQL_INT24:
    case MYSQL_LONG:
    case MYSQL_LONGLONG:
    case MYSQL_YEAR: return text_integer(span, field->is_unsigned, value);
    case MYSQL_FLOAT:
    case MYSQL_DOUBLE: return text_float(span, value);
    case MYSQL_DATE:
    case MYSQL_NEWDATE: return text_moment(span, true, value);
    case MYSQL_DATETIME:
    case MYSQL_TIMESTAMP: return text_moment(span, false, value);
    case MYSQL_TIME: return text_time(span, value);
    default: return true;
    }
}

bool mysql_row_binary(struct mysql_row *row, const struct mysql_field *field, struct mysql_value *value)
{
    struct mysql_span span;
    switch (field->type) {
    case MYSQL_NULL: value->kind = MYSQL_IS_NULL; return true;
    case MYSQL_TINY:
        if (!mysql_row_integer(row, 1, field->is_unsigned, value)) return false;
        if (field->is_boolean) value->kind = MYSQL_IS_BOOLEAN;
        return true;
    case MYSQL_SHORT: return mysql_row_integer(row, 2, field->is_unsigned, value);
    case MYSQL_YEAR: return mysql_row_integer(row, 2, true, value);
    case MYSQL_INT24: return mysql_row_integer(row, 4, field->is_unsigned, value);
    case MYSQL_FLOAT: return floating(row, 4, value);
    case MYSQL_DOUBLE: return floating(row, 8, value);
    case MYSQL_DATE:
    case MYSQL_NEWDATE: return mysql_string(&row->p, row->end, &span) && binary_moment(span, true, value);
    case MYSQL_DATETIME:
    case MYSQL_TIMESTAMP: return mysql_string(&row->p, row->end, &span) && binary_moment(span, false, value);
    case MYSQL_TIME: return mysql_string(&row->p, row->end, &span) && binary_time(span, value);
    default: return mysql_bytes_of(row, field, value);
    }
}

// ---- rows

bool mysql_row_begin(struct mysql_row *row, const uint8_t *p, const uint8_t *end, uint32_t columns, bool text)
{
    *row = (struct mysql_row){.p = p, .end = end, .columns = columns, .text = text};
    if (text) return true;
    size_t nulls = ((size_t)columns + 7 + 2) / 8;
    if (p >= end || *p != 0 || (size_t)(end - p) < 1 + nulls) return false;
    row->nulls = p + 1;
    row->p = p + 1 + nulls;
    return true;
}
