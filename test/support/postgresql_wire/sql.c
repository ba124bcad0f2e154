// Statements' kinds and placeholders.
#include "answers.h"

#include "wire/postgresql/sql.h"
#include "wire/postgresql/sql_placeholders.h"

void say_kinds(struct pg_span text)
{
    static const char *const names[] = {"select",
                                        "insert",
                                        "update",
                                        "delete",
                                        "merge",
                                        "begin",
                                        "commit",
                                        "rollback",
                                        "savepoint",
                                        "rollback to",
                                        "release",
                                        "prepare transaction",
                                        "commit prepared",
                                        "rollback prepared",
                                        "copy in",
                                        "copy out",
                                        "copy",
                                        "set",
                                        "set local",
                                        "reset",
                                        "discard",
                                        "prepare",
                                        "execute",
                                        "deallocate",
                                        "declare",
                                        "fetch",
                                        "move",
                                        "close",
                                        "listen",
                                        "unlisten",
                                        "notify",
                                        "lock",
                                        "explain",
                                        "show",
                                        "call",
                                        "do",
                                        "definition",
                                        "other"};
    struct pg_sql_scan scan;
    struct pg_sql_statement statement;
    const char *separator = "";
    for (pg_sql_begin(&scan, text.at, text.at + text.length, false); pg_sql_next_statement(&scan, &statement);) {
        const char *effect = statement.session ? " session" : statement.calls ? " calls" : "";
        printf("%s%s%s", separator, names[statement.kind], effect);
        separator = ",";
    }
    if (scan.unterminated) printf(" unterminated");
}

// Names are numbered in the order in which they are first met; "unknown" is bound to nothing.
static struct pg_span met[16];
static uint32_t met_count;

static uint32_t number(void *context, struct pg_span name)
{
    (void)context;
    if (name.length == 7 && memcmp(name.at, "unknown", 7) == 0) return 0;
    for (uint32_t i = 0; i < met_count; i++)
        if (met[i].length == name.length && memcmp(met[i].at, name.at, name.length) == 0) return i + 1;
    met[met_count] = name;
    return ++met_count;
}

void rewrite(struct pg_span text, bool named, bool backslashes)
{
    struct pg_sql_rewriting rewriting = {.backslashes = backslashes, .number = named ? number : NULL};
    met_count = 0;
    buffer.length = 0;
    enum pg_written written = pg_sql_rewrite(&buffer, text.at, text.at + text.length, &rewriting);
    if (written) {
        printf("%s", refusal(written));
        return;
    }
    printf("%u %s ", rewriting.parameters, rewriting.native ? "native" : "rewritten");
    say_hex(buffer.at, buffer.length);
}
