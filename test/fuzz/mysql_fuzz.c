// Throws bytes at the parsers of wire/mysql/packets.c and wire/mysql/rows.c, alone, under sanitizers; see fuzz.h. An
// input is a packet's payload, and also a row: one byte with a number of columns, two for each (type, unsigned or not),
// then the row.
#include "wire/mysql/rows.h"

#include "fuzz.h"

static void check_span(struct mysql_span span, const uint8_t *p, const uint8_t *end)
{
    if (!span.at) return;
    check(span.at >= p && span.at <= end && span.length <= (size_t)(end - span.at), "a span leaves its input");
}

static void check_value(const struct mysql_value *value, const uint8_t *p, const uint8_t *end)
{
    if (value->kind == MYSQL_IS_BYTES || value->kind == MYSQL_IS_DECIMAL) check_span(value->bytes, p, end);
    if (value->kind == MYSQL_IS_DECIMAL) check(value->bytes.length > 0, "a decimal has digits");
    if (value->kind == MYSQL_IS_DATE || value->kind == MYSQL_IS_DATETIME) {
        check(value->moment.month >= 1 && value->moment.month <= 12 && value->moment.day >= 1, "a day of no calendar");
        int64_t days = mysql_days(&value->moment);
        check(days >= -719528 && days <= 2932896, "a day between the years 0 and 9999");
    }
    if (value->kind == MYSQL_IS_TIME)
        check(llabs(value->integer) <= INT64_C(1000) * 24 * 3600 * 1000000, "a time of a thousand days");
}

static void try_row(const uint8_t *p, const uint8_t *end)
{
    if (p >= end) return;
    uint32_t columns = *p++ % 24;
    if (end - p < 2 * columns) return;
    struct mysql_field fields[24];
    for (uint32_t i = 0; i < columns; i++, p += 2)
        fields[i] = (struct mysql_field){.type = p[0], .is_unsigned = p[1] & 1, .is_boolean = p[1] & 2};
    for (int text = 0; text < 2; text++) {
        struct mysql_row row;
        if (!mysql_row_begin(&row, p, end, columns, text)) continue;
        struct mysql_value values[24];
        bool valid = true;
        for (uint32_t i = 0; valid && i < columns; i++)
            valid = mysql_row_next(&row, &fields[i], &values[i]);
        if (valid) {
            for (uint32_t i = 0; i < columns; i++)
                check_value(&values[i], p, end);
            struct mysql_value more;
            check(!mysql_row_next(&row, fields, &more), "one column too many");
        }
        check(row.p >= p && row.p <= end, "a row leaves its input");
    }
}

static void try_input(const uint8_t *p, const uint8_t *end)
{
    struct mysql_greeting greeting;
    if (mysql_greeting(p, end, &greeting)) {
        check_span(greeting.version, p, end);
        check_span(greeting.plugin, p, end);
    }
    mysql_reply(p, end);
    for (int way = 0; way < 4; way++)
        mysql_row_reply(p, end, way & 1, way >> 1);
    struct mysql_ok ok;
    mysql_ok(p, end, &ok);
    mysql_end(p, end, &ok);
    struct mysql_error error;
    if (mysql_error(p, end, &error)) {
        check_span(error.message, p, end);
        check_span(error.state, p, end);
    }
    struct mysql_prepared prepared;
    mysql_prepared(p, end, &prepared);
    uint32_t columns;
    bool definitions;
    for (int announced = 0; announced < 2; announced++)
        if (mysql_result_head(p, end, announced, &columns, &definitions)) check(columns > 0, "a result has columns");
    struct mysql_column column;
    if (mysql_column(p, end, &column)) {
        check_span(column.schema, p, end);
        check_span(column.table, p, end);
        check_span(column.original_table, p, end);
        check_span(column.name, p, end);
        check_span(column.original_name, p, end);
    }
    const uint8_t *moved = p;
    uint64_t number;
    uint8_t again[9];
    if (mysql_number(&moved, end, &number)) {
        const uint8_t *q = again;
        uint64_t same;
        check(mysql_number(&q, again + mysql_put_number(again, number), &same) && same == number, "a number changes");
    }
    try_row(p, end);
}

int main(int argc, char **argv)
{
    static const uint8_t tells[] = {0,   1,   2,   3,   4,   6,   7,   8,   10,  11,  12,  13,  16,  63,  '0', '9',
                                    '-', ':', '.', ' ', '#', 127, 128, 245, 246, 250, 251, 252, 253, 254, 255};
    return fuzz(argc, argv, tells, sizeof tells, 1);
}
