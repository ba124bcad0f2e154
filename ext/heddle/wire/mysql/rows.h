// The values of rows in the protocol of MySQL and MariaDB: binary for prepared statements, text for COM_QUERY.
#ifndef HEDDLE_WIRE_MYSQL_ROWS_H
#define HEDDLE_WIRE_MYSQL_ROWS_H

#include "wire/mysql/packets.h"

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
    MYSQL_IS_NULL, // also for dates without a month or a day, which no calendar has
    MYSQL_IS_INTEGER,
    MYSQL_IS_UNSIGNED,
    MYSQL_IS_BOOLEAN, // an integer
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
        int64_t integer; // also for MYSQL_IS_TIME
        uint64_t unsigned_integer;
        double number;
        struct mysql_span bytes;
        struct mysql_moment moment;
    };
};

// The parts of a column's definition that affect its values.
struct mysql_field {
    uint8_t type;
    bool is_unsigned;
    bool is_boolean; // MYSQL_TINY that is read as a boolean
};

struct mysql_row {
    const uint8_t *p, *end;
    const uint8_t *nulls; // of a binary row
    uint32_t column, columns;
    bool text;
};

bool mysql_row_begin(struct mysql_row *row, const uint8_t *p, const uint8_t *end, uint32_t columns, bool text);

// Read the row's current value: mysql_row_text of a text row, mysql_row_binary the types that mysql_row_next does not
// read itself.
bool mysql_row_text(struct mysql_row *row, const struct mysql_field *field, struct mysql_value *value);
bool mysql_row_binary(struct mysql_row *row, const struct mysql_field *field, struct mysql_value *value);

static inline bool mysql_row_null(const struct mysql_row *row)
{
    uint32_t bit = row->column + 2;
    return row->nulls[bit / 8] >> (bit % 8) & 1;
}

static inline bool mysql_row_integer(struct mysql_row *row, size_t bytes, bool is_unsigned, struct mysql_value *value)
{
    uint64_t number;
    if (!mysql_take(&row->p, row->end, bytes, &number)) return false;
    value->kind = is_unsigned ? MYSQL_IS_UNSIGNED : MYSQL_IS_INTEGER;
    if (is_unsigned) {
        value->unsigned_integer = number;
    } else {
        unsigned unused = (unsigned)(64 - 8 * bytes);
        value->integer = (int64_t)(number << unused) >> unused;
    }
    return true;
}

// Reads the next column, which `field` describes. Reads the most common types inline: one call per value would double
// the cost.
static inline bool mysql_row_next(struct mysql_row *row, const struct mysql_field *field, struct mysql_value *value)
{
    if (row->column == row->columns) return false;
    bool valid = true;
    if (row->text) {
        valid = mysql_row_text(row, field, value);
    } else if (mysql_row_null(row)) {
        value->kind = MYSQL_IS_NULL;
    } else {
        switch (field->type) {
        case MYSQL_LONG: valid = mysql_row_integer(row, 4, field->is_unsigned, value); break;
        case MYSQL_LONGLONG: valid = mysql_row_integer(row, 8, field->is_unsigned, value); break;
        case MYSQL_VAR_STRING:
        case MYSQL_STRING:
        case MYSQL_BLOB:
            valid = mysql_string(&row->p, row->end, &value->bytes);
            value->kind = MYSQL_IS_BYTES;
            break;
        default: valid = mysql_row_binary(row, field, value); break;
        }
    }
    row->column++;
    return valid;
}

// Returns whether all columns were read and no bytes are left.
static inline bool mysql_row_complete(const struct mysql_row *row)
{
    return row->column == row->columns && row->p == row->end;
}

// Days since 1970-01-01.
int64_t mysql_days(const struct mysql_moment *moment);

#endif
