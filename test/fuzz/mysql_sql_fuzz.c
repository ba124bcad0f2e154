// Throws text at wire/mysql/sql.c, alone, under sanitizers; see fuzz.h.
#include "wire/mysql/sql.h"

#include "fuzz.h"

static void try_placeholders(const uint8_t *p, const uint8_t *end)
{
    struct mysql_placeholder_scan scan = {.start = p, .p = p, .end = end};
    enum mysql_placeholder kind;
    int questions = 0;
    const uint8_t *before = p;
    while ((kind = mysql_sql_placeholder(&scan)) == MYSQL_PLACEHOLDER_QUESTION || kind == MYSQL_PLACEHOLDER_NAME) {
        check(scan.begin >= before && scan.p > scan.begin && scan.p <= end, "a placeholder outside the text");
        check(*scan.begin == (kind == MYSQL_PLACEHOLDER_NAME ? ':' : '?'), "a placeholder that is none");
        if (kind == MYSQL_PLACEHOLDER_QUESTION) questions++;
        before = scan.p;
    }
    if (kind == MYSQL_PLACEHOLDER_NONE && questions <= UINT16_MAX)
        check(mysql_sql_parameters(p, end) == questions, "another number of parameters");
}

static void try_input(const uint8_t *p, const uint8_t *end)
{
    mysql_sql_kind(p, end);
    mysql_sql_way(p, end);
    mysql_sql_leaves_traces(p, end);
    mysql_sql_writes(p, end);
    mysql_sql_refers_back(p, end);
    try_placeholders(p, end);
    int count = mysql_sql_parameters(p, end), all = 0;
    for (const uint8_t *q = p; q < end; q++)
        all += *q == '?';
    check(count <= all, "more parameters than question marks");
    if (count >= 0 && memchr(p, '\\', (size_t)(end - p)) == NULL && memchr(p, '\'', (size_t)(end - p)) == NULL &&
        memchr(p, '"', (size_t)(end - p)) == NULL && memchr(p, '`', (size_t)(end - p)) == NULL &&
        memchr(p, '#', (size_t)(end - p)) == NULL && memchr(p, '-', (size_t)(end - p)) == NULL &&
        memchr(p, '/', (size_t)(end - p)) == NULL)
        check(count == all, "a question mark that is none");
}

int main(int argc, char **argv)
{
    static const char tells[] = "?'\"`\\#-/*! \n;M()to:";
    return fuzz(argc, argv, tells, sizeof tells - 1, 1);
}
