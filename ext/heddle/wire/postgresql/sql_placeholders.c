#include "wire/postgresql/sql_placeholders.h"

// Puts "$17", separated from words on both sides.
static enum pg_written put_parameter(struct pg_buffer *buffer, size_t begin, uint32_t number, const uint8_t *behind,
                                     const uint8_t *end)
{
    char digits[10];
    size_t count = 0;
    for (; number > 0; number /= 10)
        digits[sizeof digits - ++count] = (char)('0' + number % 10);
    if (!pg_reserve(buffer, count + 3)) return PG_NO_ROOM;
    uint8_t *at = buffer->at;
    if (buffer->length > begin && pg_sql_in_word(at[buffer->length - 1])) at[buffer->length++] = ' ';
    at[buffer->length++] = '$';
    memcpy(at + buffer->length, digits + sizeof digits - count, count);
    buffer->length += count;
    if (behind < end && pg_sql_in_word(*behind)) at[buffer->length++] = ' ';
    return PG_WRITTEN;
}

// Puts the replacement of the token; *replaced is false if the token stays.
static enum pg_written replace(struct pg_buffer *buffer, size_t begin, struct pg_sql_scan *scan,
                               struct pg_sql_rewriting *rewriting, bool *replaced)
{
    uint32_t number;
    *replaced = true;
    if (scan->token == PG_SQL_ESCAPED_QUESTION) return pg_put_8(buffer, '?');
    if (scan->token == PG_SQL_QUESTION && !rewriting->number) {
        number = ++rewriting->parameters;
    } else if (scan->token == PG_SQL_NAME && rewriting->number) {
        struct pg_span name = {scan->text.at + 1, scan->text.length - 1};
        number = rewriting->number(rewriting->context, name);
        if (number > rewriting->parameters) rewriting->parameters = number;
        if (number == 0) {
            rewriting->unknown_name = name;
            return PG_UNKNOWN_NAME;
        }
    } else {
        *replaced = false;
        return PG_WRITTEN;
    }
    if (number > PG_PARAMETERS_MOST) return PG_TOO_MANY_PARAMETERS;
    return put_parameter(buffer, begin, number, scan->p, scan->end);
}

static enum pg_written rewrite(struct pg_buffer *buffer, struct pg_sql_scan *scan, struct pg_sql_rewriting *rewriting)
{
    const uint8_t *kept = scan->p; // the text from here on has not been put yet
    size_t begin = buffer->length;
    enum pg_written written = PG_WRITTEN;
    while (!written && pg_sql_next(scan) != PG_SQL_END) {
        if (scan->token != PG_SQL_QUESTION && scan->token != PG_SQL_ESCAPED_QUESTION && scan->token != PG_SQL_NAME)
            continue;
        bool replaced;
        written = pg_put_bytes(buffer, kept, (size_t)(scan->text.at - kept));
        kept = scan->text.at;
        if (!written) written = replace(buffer, begin, scan, rewriting, &replaced);
        if (!written && replaced) kept = scan->p;
    }
    if (!written) written = pg_put_bytes(buffer, kept, (size_t)(scan->end - kept));
    return written;
}

enum pg_written pg_sql_put_numbers(struct pg_buffer *buffer, const uint8_t *p, const uint8_t *end,
                                   const uint32_t *places, uint32_t count, uint32_t *parameters)
{
    size_t begin = buffer->length;
    const uint8_t *kept = p; // the text from here on has not been put yet
    enum pg_written written = PG_WRITTEN;
    *parameters = 0;
    for (uint32_t i = 0; i < count && !written; i++) {
        const uint8_t *at = p + places[i];
        written = pg_put_bytes(buffer, kept, (size_t)(at - kept));
        bool escaped = end - at >= 2 && at[1] == '?';
        kept = at + 1 + escaped;
        if (written) break;
        written = escaped ? pg_put_8(buffer, '?') : put_parameter(buffer, begin, ++*parameters, kept, end);
    }
    if (!written) written = pg_put_bytes(buffer, kept, (size_t)(end - kept));
    if (written) buffer->length = begin;
    return written;
}

enum pg_written pg_sql_rewrite(struct pg_buffer *buffer, const uint8_t *p, const uint8_t *end,
                               struct pg_sql_rewriting *rewriting)
{
    struct pg_sql_scan scan;
    pg_sql_begin(&scan, p, end, rewriting->backslashes);
    rewriting->parameters = 0;
    rewriting->unknown_name = (struct pg_span){NULL, 0};
    size_t before = buffer->length;
    enum pg_written written = rewrite(buffer, &scan, rewriting);
    while (scan.token != PG_SQL_END)
        pg_sql_next(&scan);
    rewriting->native = scan.native;
    if (scan.native) { // whatever stands in front of the first $1
        buffer->length = before;
        rewriting->parameters = scan.highest;
        rewriting->unknown_name = (struct pg_span){NULL, 0};
        written = pg_put_bytes(buffer, p, (size_t)(end - p));
    }
    if (written) buffer->length = before;
    return written;
}
