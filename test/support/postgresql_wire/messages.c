// Requests to the server, and its messages.
#include "answers.h"

#include "wire/postgresql/messages.h"
#include "wire/postgresql/requests.h"

// A statement with one parameter, prepared and run in one round trip.
void one_flight(struct pg_span sql, struct pg_span value)
{
    static const uint8_t formats[] = {PG_TEXT}, result_formats[] = {PG_BINARY};
    struct pg_bind bind;
    buffer.length = 0;
    enum pg_written written = pg_put_parse(&buffer, text_of("s"), sql, NULL, 0);
    if (!written) written = pg_bind_begin(&bind, &buffer, text_of(""), text_of("s"), formats, 1, 1);
    if (!written) written = pg_bind_value(&bind, value);
    if (!written) written = pg_bind_end(&bind, result_formats, 1);
    if (!written) written = pg_put_describe(&buffer, PG_PORTAL, text_of(""));
    if (!written) written = pg_put_execute(&buffer, text_of(""), 0);
    if (!written) written = pg_put_close(&buffer, PG_STATEMENT, text_of("s"));
    if (!written) written = pg_put_sync(&buffer);
    say_written(written);
}

void bind_many(uint32_t count, uint32_t values, uint32_t formats)
{
    static const uint8_t format[8];
    struct pg_bind bind;
    buffer.length = 0;
    pg_bind_begin(&bind, &buffer, text_of(""), text_of(""), format, formats, count);
    for (uint32_t i = 0; i < values; i++)
        pg_bind_value(&bind, (struct pg_span){NULL, 0});
    enum pg_written written = pg_bind_end(&bind, NULL, 0);
    printf("%s %zu", refusal(written), buffer.length);
}

// Requests that are refused before a byte of them is written.
void say_refusals(void)
{
    struct pg_span huge = {(const uint8_t *)"", (size_t)PG_MESSAGE_MOST + 1};
    struct pg_span nul = {(const uint8_t *)"a\0b", 3};
    buffer.length = 0;
    printf("%s, ", refusal(pg_put_query(&buffer, nul)));
    printf("%s, ", refusal(pg_put_query(&buffer, huge)));
    printf("%s, ", refusal(pg_put_parse(&buffer, text_of(""), text_of(""), NULL, PG_PARAMETERS_MOST + 1)));
    printf("%s, ", refusal(pg_put_execute(&buffer, text_of(""), UINT32_C(1) << 31)));
    printf("%zu", buffer.length);
}

// The types of messages, and of some what they say.
void say_messages(struct pg_span bytes)
{
    const uint8_t *p = bytes.at, *end = bytes.at + bytes.length;
    struct pg_message message;
    while (pg_message(p, end, &message) == PG_DONE) {
        struct pg_columns columns;
        struct pg_column column;
        struct pg_row row;
        struct pg_command command;
        struct pg_span value;
        enum pg_transaction transaction;
        printf("%c", message.type);
        if (message.type == PG_ROW_DESCRIPTION && pg_columns_begin(message.p, message.end, &columns)) {
            while (pg_columns_next(&columns, &column))
                printf("[%.*s %u]", (int)column.name.length, column.name.at, column.type);
            if (!pg_columns_complete(&columns)) printf("!");
        }
        if (message.type == PG_DATA_ROW && pg_row_begin(message.p, message.end, &row)) {
            while (pg_row_next(&row, &value)) {
                printf("[");
                say_element(value);
                printf("]");
            }
            if (!pg_row_complete(&row)) printf("!");
        }
        if (message.type == PG_COMMAND_COMPLETE && pg_command(message.p, message.end, &command))
            printf("[%.*s %llu]", (int)command.name.length, command.name.at, (unsigned long long)command.rows);
        if (message.type == PG_ERROR_RESPONSE && pg_error_field(message.p, message.end, PG_ERROR_SQLSTATE, &value))
            printf("[%.*s]", (int)value.length, value.at);
        if (message.type == PG_READY_FOR_QUERY && pg_ready_for_query(message.p, message.end, &transaction))
            printf("[%c]", transaction);
        printf(" ");
        p = message.end;
    }
    printf("%zu", (size_t)(end - p));
}
