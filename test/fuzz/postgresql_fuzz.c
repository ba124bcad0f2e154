// Throws bytes at the parsers of wire/postgresql/messages.c, alone, under sanitizers; see fuzz.h. An input is what a
// server sends, one message behind the other. The corpus is what PostgreSQL 15 sent.
#include "wire/postgresql/messages.h"

#include "fuzz.h"

static void check_span(struct pg_span span, const uint8_t *p, const uint8_t *end)
{
    if (!span.at) return;
    check(span.at >= p && span.at <= end && span.length <= (size_t)(end - span.at), "a span leaves its input");
}

static void try_state(const uint8_t *p, const uint8_t *end)
{
    struct pg_span name, value;
    if (pg_parameter_status(p, end, &name, &value)) {
        check_span(name, p, end);
        check_span(value, p, end);
    }
    enum pg_transaction transaction;
    if (pg_ready_for_query(p, end, &transaction)) check(end - p == 1, "ReadyForQuery has one byte");
}

static void try_result(const uint8_t *p, const uint8_t *end)
{
    struct pg_columns columns;
    struct pg_column column;
    if (pg_columns_begin(p, end, &columns)) {
        while (pg_columns_next(&columns, &column)) {
            check_span(column.name, p, end);
            check(column.format <= PG_BINARY, "an unknown format");
        }
        check(columns.p >= p && columns.p <= end && columns.index <= columns.count, "columns leave their input");
    }
    struct pg_parameters parameters;
    if (pg_parameters(p, end, &parameters) && parameters.count > 0) {
        uint32_t last = pg_parameter_type(&parameters, (uint16_t)(parameters.count - 1));
        check(last == pg_load_32(end - 4), "the type of the last parameter");
    }
    struct pg_row row;
    struct pg_span value;
    if (pg_row_begin(p, end, &row)) {
        while (pg_row_next(&row, &value))
            check_span(value, p, end);
        check(row.p >= p && row.p <= end && row.index <= row.count, "a row leaves its input");
    }
    struct pg_command command;
    if (pg_command(p, end, &command)) {
        check_span(command.tag, p, end);
        check_span(command.name, p, end);
        check(command.counted || command.rows == 0, "rows without a count");
    }
    struct pg_copy copy;
    if (pg_copy_response(p, end, &copy)) check(copy.formats + 2 * (size_t)copy.columns == end, "formats of columns");
}

static void try_report(const uint8_t *p, const uint8_t *end)
{
    struct pg_errors errors;
    struct pg_span value, again;
    uint8_t field;
    for (pg_errors_begin(p, end, &errors); pg_errors_next(&errors, &field, &value);) {
        check_span(value, p, end);
        check(field != 0 && pg_error_field(p, end, field, &again), "a field that is not found again");
    }
    struct pg_notification notification;
    if (pg_notification(p, end, &notification)) {
        check_span(notification.channel, p, end);
        check_span(notification.payload, p, end);
    }
}

static void try_input(const uint8_t *p, const uint8_t *end)
{
    struct pg_message message;
    while (pg_message(p, end, &message) == PG_DONE) {
        check(message.p == p + PG_HEADER && message.end == p + message.whole && message.end <= end,
              "a message's bytes");
        struct pg_message less;
        check(pg_message(p, message.end - 1, &less) == PG_MORE, "a message that lacks a byte");
        try_state(message.p, message.end);
        try_result(message.p, message.end);
        try_report(message.p, message.end);
        p = message.end;
    }
    // What is left, or was never framed.
    if (end - p > PG_HEADER) p += PG_HEADER;
    try_state(p, end);
    try_result(p, end);
    try_report(p, end);
}

int main(int argc, char **argv)
{
    static const char tells[] = "RKvSZTtnDCIs123ENAGHWdcV\0\1\2\3\4\5\10\12\377\177IT";
    return fuzz(argc, argv, tells, sizeof tells - 1, 16);
}
