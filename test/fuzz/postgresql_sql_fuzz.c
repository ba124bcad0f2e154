// Throws text at wire/postgresql/sql*.c, alone, under sanitizers; see fuzz.h.
#include "wire/postgresql/sql.h"
#include "wire/postgresql/sql_placeholders.h"

#include "fuzz.h"

static bool grow(struct pg_buffer *buffer, size_t room)
{
    size_t capacity = buffer->length + room; // exactly, for the sanitizer to see a byte too many
    buffer->at = realloc(buffer->at, capacity);
    buffer->capacity = capacity;
    return true;
}

static uint32_t number(void *context, struct pg_span name)
{
    (void)context;
    check(name.length > 0, "a placeholder without a name");
    return name.at[0] == 'u' ? 0 : name.at[0];
}

static void try_tokens(const uint8_t *p, const uint8_t *end, bool backslashes)
{
    struct pg_sql_scan scan;
    const uint8_t *last = p;
    for (pg_sql_begin(&scan, p, end, backslashes); pg_sql_next(&scan) != PG_SQL_END; last = scan.p) {
        check(scan.text.at >= last && scan.text.length > 0, "a token is empty, or begins in the one before");
        check(scan.text.at + scan.text.length == scan.p && scan.p <= end, "a token leaves its input");
    }
    check(scan.p == end, "text behind the end");
    struct pg_sql_statement statement;
    uint32_t count = 0;
    last = p;
    for (pg_sql_begin(&scan, p, end, backslashes); pg_sql_next_statement(&scan, &statement); count++) {
        check(statement.text.at >= last && statement.text.length > 0,
              "a statement is empty, or begins in the last one");
        last = statement.text.at + statement.text.length;
        check(last <= end, "a statement leaves its input");
    }
    struct pg_sql sql;
    pg_sql_analyse(p, end, backslashes, &sql);
    check(sql.statements == count && sql.unterminated == scan.unterminated, "pg_sql_analyse differs");
}

static void try_rewriting(const uint8_t *p, const uint8_t *end, bool named, bool backslashes)
{
    struct pg_buffer buffer = {.grow = grow};
    pg_put_8(&buffer, 'x');
    struct pg_sql_rewriting rewriting = {.backslashes = backslashes, .number = named ? number : NULL};
    struct pg_sql sql, after;
    pg_sql_analyse(p, end, backslashes, &sql);
    enum pg_written written = pg_sql_rewrite(&buffer, p, end, &rewriting);
    size_t length = buffer.length - 1;
    const uint8_t *text = buffer.at + 1;
    check(buffer.at[0] == 'x', "what was in the buffer");
    if (written) {
        check(written == PG_UNKNOWN_NAME && length == 0, "a refused text is left in the buffer");
    } else if (sql.native || (!sql.escapes && !(named ? sql.names : sql.questions))) {
        check(length == (size_t)(end - p) && (length == 0 || memcmp(text, p, length) == 0), "a text was changed");
        check(rewriting.native == sql.native && rewriting.parameters == sql.highest, "the numbers of its own");
    } else {
        check(named || rewriting.parameters == sql.questions, "the count of question marks");
        pg_sql_analyse(text, text + length, backslashes, &after);
        check(after.highest == rewriting.parameters, "a placeholder that the server does not find");
        check(after.statements == sql.statements && after.unterminated == sql.unterminated, "statements differ");
        check(after.kind == sql.kind, "another kind of statement");
    }
    free(buffer.at);
}

// The places that pg_sql_analyse found, and a second scan, give the same text.
static void try_places(const uint8_t *p, const uint8_t *end, bool backslashes)
{
    struct pg_sql sql;
    pg_sql_analyse(p, end, backslashes, &sql);
    if (sql.native || sql.questions + sql.escapes > PG_SQL_PLACES) return;
    struct pg_buffer scanned = {.grow = grow}, placed = {.grow = grow};
    pg_put_8(&scanned, 'x');
    pg_put_8(&placed, 'x');
    struct pg_sql_rewriting rewriting = {.backslashes = backslashes};
    uint32_t parameters;
    check(pg_sql_rewrite(&scanned, p, end, &rewriting) == PG_WRITTEN, "a text was refused");
    check(pg_sql_put_numbers(&placed, p, end, sql.places, sql.questions + sql.escapes, &parameters) == PG_WRITTEN,
          "a text was refused by its places");
    check(parameters == rewriting.parameters, "the count of parameters by their places");
    check(placed.length == scanned.length && memcmp(placed.at, scanned.at, placed.length) == 0,
          "the places of placeholders");
    free(scanned.at);
    free(placed.at);
}

static void try_input(const uint8_t *p, const uint8_t *end)
{
    for (int way = 0; way < 4; way++) {
        if (way < 2) try_tokens(p, end, way);
        if (way < 2) try_places(p, end, way);
        try_rewriting(p, end, way & 1, way >> 1);
    }
}

int main(int argc, char **argv)
{
    static const char tells[] = "?:$'\"\\-/*;()[]aEeuU&b1\n ,=_|";
    return fuzz(argc, argv, tells, sizeof tells - 1, 4);
}
