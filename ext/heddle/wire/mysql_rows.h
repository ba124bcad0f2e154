// The values of rows in the protocol of MySQL and MariaDB: those of prepared statements are binary, those of COM_QUERY text.
#ifndef HEDDLE_WIRE_MYSQL_ROWS_H
#define HEDDLE_WIRE_MYSQL_ROWS_H

#include "wire/mysql.h"

enum mysql_type {
    MYSQL_DECIMAL = 0,
    MYSQL_TINY = 1,
    MYSQL_SHORT = 2,
    MYSQL_LONG = 3,
    MYSQL_FLOAT = 4,
    MYSQL_DOUBLE = 5,
    MYSQL_NULL = 6,
    MYSQL_TIMESTAMP = 7,
    MYSQL_LONGLONG = 8,
    MYSQL_INT24 = 9,
    MYSQL_DATE = 10,
    MYSQL_TIME = 11,
    MYSQL_DATETIME = 12,
    MYSQL_YEAR = 13,
    MYSQL_NEWDATE = 14,
    MYSQL_VARCHAR = 15,
    MYSQL_BIT = 16,
    MYSQL_JSON = 245,
    MYSQL_NEWDECIMAL = 246,
    MYSQL_ENUM = 247,
    MYSQL_SET = 248,
    MYSQL_TINY_BLOB = 249,
    MYSQL_MEDIUM_BLOB = 250,
    MYSQL_LONG_BLOB = 251,
    MYSQL_BLOB = 252,
    MYSQL_VAR_STRING = 253,
    MYSQL_STRING = 254,
    MYSQL_GEOMETRY = 255
};

enum { MYSQL_FLAG_UNSIGNED = 0x20, MYSQL_CHARSET_BINARY = 63 };

enum mysql_kind {
    MYSQL_IS_NULL, // also dates without a month or a day, which no calendar has
    MYSQL_IS_INTEGER,
    MYSQL_IS_UNSIGNED,
    MYSQL_IS_FLOAT,
    MYSQL_IS_DECIMAL, // its digits
    MYSQL_IS_BYTES,
    MYSQL_IS_DATE,
    MYSQL_IS_DATETIME,
    MYSQL_IS_TIME // signed, in microseconds
};

struct mysql_moment {
    uint32_t microsecond;
    uint16_t year;
    uint8_t month, day, hour, minute, second;
};

struct mysql_value {
    enum mysql_kind kind;
    union {
        int64_t integer; // of MYSQL_IS_TIME, too
        uint64_t unsigned_integer;
        double number;
        struct mysql_span bytes;
        struct mysql_moment moment;
    };
};

// What of a column's definition its values depend on.
struct mysql_field {
    uint8_t type;
    bool is_unsigned;
};

struct mysql_row {
    const uint8_t *p, *end;
    const uint8_t *nulls; // of a binary row
    uint32_t column, columns;
    bool text;
};

bool mysql_row_begin(struct mysql_row *row, const uint8_t *p, const uint8_t *end, uint32_t columns, bool text);

// So many columns more: `fields` and `values` are theirs.
bool mysql_row_read(struct mysql_row *row, const struct mysql_field *fields, uint32_t count,
                    struct mysql_value *values);

// All columns were read, and nothing is left.
bool mysql_row_complete(const struct mysql_row *row);

// Days since 1970-01-01.
int64_t mysql_days(const struct mysql_moment *moment);

#endif
