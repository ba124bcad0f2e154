#include "wire/mysql/sql.h"

#include <string.h>

static bool mysql_is_word(uint8_t byte)
{
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9') ||
           byte == '_' || byte == '$' || byte >= 0x80;
}

static const uint8_t *line_end(const uint8_t *p, const uint8_t *end)
{
    const uint8_t *newline = memchr(p, '\n', (size_t)(end - p));
    return newline ? newline + 1 : end;
}

// The end of the comment that begins at `p`, or `p` if none does. NULL for a comment that some servers execute.
static const uint8_t *behind_comment(const uint8_t *p, const uint8_t *end)
{
    if (*p == '#') return line_end(p, end);
    if (end - p < 2) return p;
    // The two dashes of 5--1 begin no comment.
    if (p[0] == '-' && p[1] == '-' && (end - p == 2 || p[2] <= ' ' || p[2] == 0x7f)) return line_end(p, end);
    if (p[0] != '/' || p[1] != '*') return p;
    if (end - p > 2 && (p[2] == '!' || (p[2] == 'M' && end - p > 3 && p[3] == '!'))) return NULL;
    for (p += 2; end - p >= 2; p++)
        if (p[0] == '*' && p[1] == '/') return p + 2;
    return end;
}

static bool begins_name(const struct mysql_placeholder_scan *scan, const uint8_t *colon)
{
    const uint8_t *p = colon + 1;
    if (p == scan->end || !mysql_is_word(*p) || *p == '$' || (*p >= '0' && *p <= '9')) return false;
    return colon == scan->start || (colon[-1] != ':' && !mysql_is_word(colon[-1]));
}

enum mysql_placeholder mysql_sql_placeholder(struct mysql_placeholder_scan *scan)
{
    const uint8_t *end = scan->end;
    while (scan->p < end) {
        const uint8_t *p = scan->p, *behind = behind_comment(p, end);
        if (!behind) return MYSQL_PLACEHOLDER_UNKNOWN;
        if (behind != p) {
            scan->p = behind;
            continue;
        }
        uint8_t byte = *p++;
        scan->begin = scan->p;
        if (byte == '\\') return MYSQL_PLACEHOLDER_UNKNOWN;
        if (byte == '?') {
            scan->p = p;
            return MYSQL_PLACEHOLDER_QUESTION;
        }
        if (byte == '\'' || byte == '"' || byte == '`') {
            const uint8_t *close = memchr(p, byte, (size_t)(end - p));
            // The meaning of a backslash in quotes depends on sql_mode.
            if (!close || (byte != '`' && memchr(p, '\\', (size_t)(close - p)))) return MYSQL_PLACEHOLDER_UNKNOWN;
            p = close + 1; // a doubled quote opens the next part at once
        } else if (byte == ':' && begins_name(scan, p - 1)) {
            while (p < end && mysql_is_word(*p) && *p != '$')
                p++;
            scan->p = p;
            return MYSQL_PLACEHOLDER_NAME;
        }
        scan->p = p;
    }
    return MYSQL_PLACEHOLDER_NONE;
}

int mysql_sql_parameters(const uint8_t *p, const uint8_t *end)
{
    struct mysql_placeholder_scan scan = {.start = p, .p = p, .end = end};
    int count = 0;
    for (;;) {
        switch (mysql_sql_placeholder(&scan)) {
        case MYSQL_PLACEHOLDER_NONE: return count;
        case MYSQL_PLACEHOLDER_UNKNOWN: return -1;
        case MYSQL_PLACEHOLDER_QUESTION:
            if (++count > UINT16_MAX) return -1;
            break;
        case MYSQL_PLACEHOLDER_NAME: break;
        }
    }
}

// Finds the next word; its length is 0 at the end.
static size_t next_word(const uint8_t **p, const uint8_t *end)
{
    while (*p < end) {
        const uint8_t *behind = behind_comment(*p, end);
        if (!behind) behind = *p + 2; // its contents are executed
        if (behind != *p) {
            *p = behind;
        } else if (mysql_is_word(**p)) {
            break;
        } else {
            (*p)++;
        }
    }
    size_t length = 0;
    while ((size_t)(end - *p) > length && mysql_is_word((*p)[length]))
        length++;
    return length;
}

static bool mysql_same(const uint8_t *p, size_t length, const char *word)
{
    if (strlen(word) != length) return false;
    for (size_t i = 0; i < length; i++) {
        uint8_t byte = p[i] >= 'A' && p[i] <= 'Z' ? (uint8_t)(p[i] | 0x20) : p[i];
        if (byte != (uint8_t)word[i]) return false;
    }
    return true;
}

static bool among(const uint8_t *p, size_t length, const char *const *words)
{
    for (; *words; words++)
        if (mysql_same(p, length, *words)) return true;
    return false;
}

static const char *const plain[] = {"select", "insert", "update", "delete", "replace", "with", "values", "table", NULL};

// MySQL 8.0 and MariaDB 10.11, "statements that cause an implicit commit", and statements whose purpose is to end a
// transaction.
static const char *const commits[] = {"alter",    "analyze", "begin",    "cache",     "change", "check",    "commit",
                                      "create",   "drop",    "flush",    "grant",     "import", "install",  "lock",
                                      "optimize", "rename",  "repair",   "reset",     "revoke", "rollback", "shutdown",
                                      "start",    "stop",    "truncate", "uninstall", "unlock", "xa",       NULL};

// MariaDB's ANALYZE SELECT … (UPDATE, …) runs the statement and reports its cost, and BEGIN NOT ATOMIC begins a block:
// neither ends a transaction, unlike ANALYZE TABLE and BEGIN. `p` is at the first word, of `length`.
static enum mysql_sql second_word_commits(const uint8_t *p, size_t length, const uint8_t *end)
{
    static const char *const tables[] = {"table", "tables", "local", "no_write_to_binlog", NULL};
    bool begin = mysql_same(p, length, "begin");
    p += length;
    length = next_word(&p, end);
    if (begin) return mysql_same(p, length, "not") ? MYSQL_SQL_OTHER : MYSQL_SQL_COMMIT;
    return among(p, length, tables) ? MYSQL_SQL_COMMIT : MYSQL_SQL_OTHER;
}

// Whether a user variable (@name) stands in the statement outside of strings, quoted names and comments.
static bool has_variable(const uint8_t *p, const uint8_t *end)
{
    while (p < end) {
        const uint8_t *behind = behind_comment(p, end);
        if (!behind) behind = p + 2; // its contents are executed
        if (behind != p) {
            p = behind;
            continue;
        }
        uint8_t byte = *p++;
        if (byte == '@') {
            if (p == end || *p != '@') return true;
            p++; // @@name is a system variable
        } else if (byte == '\'' || byte == '"' || byte == '`') {
            const uint8_t *close = memchr(p, byte, (size_t)(end - p));
            // The meaning of a backslash in quotes depends on sql_mode.
            if (!close || (byte != '`' && memchr(p, '\\', (size_t)(close - p))))
                return memchr(p, '@', (size_t)(end - p));
            p = close + 1;
        }
    }
    return false;
}

// Returns whether the statement may set a user variable or take a named lock, which the server does not report as a
// change of the session. get_lock in strings and comments counts, too.
static bool mentions_session(const uint8_t *p, const uint8_t *end)
{
    for (const uint8_t *at = p; (at = memchr(at, '_', (size_t)(end - at))); at++)
        if (at - p >= 3 && end - at >= 5 && mysql_same(at - 3, 3, "get") && mysql_same(at + 1, 4, "lock")) return true;
    return has_variable(p, end);
}

// Moves to the first word, and returns its length. Skips the version number in a comment such as /*!50003 create …
static size_t first_word(const uint8_t **p, const uint8_t *end)
{
    size_t length = next_word(p, end);
    while (length && **p >= '0' && **p <= '9') {
        *p += length;
        length = next_word(p, end);
    }
    return length;
}

bool mysql_sql_writes(const uint8_t *p, const uint8_t *end)
{
    static const char *const writes[] = {"insert", "update", "delete", "replace", NULL};
    size_t length = first_word(&p, end);
    return among(p, length, writes);
}

bool mysql_sql_refers_back(const uint8_t *p, const uint8_t *end)
{
    static const char *const names[] = {"last_insert_id", "found_rows", "row_count", "lastval", NULL};
    for (const uint8_t *at = p; (at = memchr(at, '@', (size_t)(end - at))); at++)
        if (end - at > 1 && at[1] == '@') return true;
    for (size_t length; (length = next_word(&p, end)); p += length) {
        if (among(p, length, names)) return true;
        if (!mysql_same(p, length, "previous")) continue;
        const uint8_t *next = p + length; // value for a sequence
        length = next_word(&next, end);
        if (mysql_same(next, length, "value")) return true;
        p = next;
    }
    return false;
}

// Whether the statement reads @@warning_count or @@error_count. In strings and comments they count, too.
static bool counts_conditions(const uint8_t *p, const uint8_t *end)
{
    static const char *const counts[] = {"warning_count", "error_count", NULL};
    while ((p = memchr(p, '@', (size_t)(end - p)))) {
        if (++p == end) return false;
        if (*p != '@') continue;
        size_t length = next_word(&p, end);
        if (mysql_same(p, length, "session") || mysql_same(p, length, "local")) {
            p += length;
            length = next_word(&p, end);
        }
        if (among(p, length, counts)) return true;
    }
    return false;
}

enum mysql_sql_way mysql_sql_way(const uint8_t *p, const uint8_t *end)
{
    static const char *const texts[] = {"deallocate", "desc",    "describe",  "do",     "explain", "help", "kill",
                                        "prepare",    "release", "savepoint", "signal", "use",     NULL};
    const uint8_t *word = p;
    size_t length = first_word(&word, end);
    if (mysql_same(word, length, "show") || mysql_same(word, length, "get")) return MYSQL_WAY_DIAGNOSTICS;
    if (mysql_same(word, length, "set")) {
        word += length;
        length = next_word(&word, end);
        return mysql_same(word, length, "statement") ? MYSQL_WAY_PREPARED
                                                     : MYSQL_WAY_TEXT; // set statement … for select
    }
    if (among(word, length, texts)) return MYSQL_WAY_TEXT;
    if (among(word, length, plain)) return counts_conditions(word, end) ? MYSQL_WAY_DIAGNOSTICS : MYSQL_WAY_PREPARED;
    if (!among(word, length, commits)) return MYSQL_WAY_PREPARED;
    bool compound = mysql_same(word, length, "begin") && mysql_sql_kind(p, end) != MYSQL_SQL_COMMIT;
    return compound ? MYSQL_WAY_PREPARED : MYSQL_WAY_TEXT;
}

bool mysql_sql_leaves_traces(const uint8_t *p, const uint8_t *end)
{
    static const char *const harmless[] = {
        "alter",  "analyze", "begin",    "check",     "checksum", "commit", "create",   "desc",    "describe",
        "drop",   "explain", "grant",    "help",      "kill",     "load",   "optimize", "release", "rename",
        "repair", "revoke",  "rollback", "savepoint", "show",     "start",  "truncate", NULL};
    const uint8_t *word = p;
    size_t length = first_word(&word, end);
    if (!among(word, length, harmless)) return true;
    if (mysql_same(word, length, "begin")) { // and not BEGIN NOT ATOMIC, or a block of sql_mode ORACLE
        word += length;
        length = next_word(&word, end);
        return length && !mysql_same(word, length, "work");
    }
    // Of temporary tables, and of statements prepared by SQL.
    if ((mysql_same(word, length, "create") || mysql_same(word, length, "drop")) &&
        mysql_sql_kind(p, end) != MYSQL_SQL_COMMIT)
        return true;
    return mentions_session(word, end);
}

enum mysql_sql mysql_sql_kind(const uint8_t *p, const uint8_t *end)
{
    size_t length = first_word(&p, end);
    if (among(p, length, plain)) return mentions_session(p, end) ? MYSQL_SQL_SESSION : MYSQL_SQL_PLAIN;
    if (!among(p, length, commits)) {
        if (!mysql_same(p, length, "load") && !mysql_same(p, length, "set")) return MYSQL_SQL_OTHER;
        bool set = mysql_same(p, length, "set");
        p += length;
        length = next_word(&p, end);
        bool ends = set ? mysql_same(p, length, "password") || mysql_same(p, length, "autocommit") ||
                              mysql_same(p, length, "default")
                        : mysql_same(p, length, "index");
        return ends ? MYSQL_SQL_COMMIT : MYSQL_SQL_OTHER;
    }
    if (mysql_same(p, length, "analyze") || mysql_same(p, length, "begin")) return second_word_commits(p, length, end);
    bool rollback = mysql_same(p, length, "rollback"), drop = mysql_same(p, length, "drop"),
         table = mysql_same(p, length, "create") || mysql_same(p, length, "drop");
    p += length;
    length = next_word(&p, end);
    if (table && mysql_same(p, length, "or")) { // replace
        p += length;
        length = next_word(&p, end);
        p += length;
        length = next_word(&p, end);
    }
    if (table && mysql_same(p, length, "temporary")) return MYSQL_SQL_OTHER;
    if (drop && mysql_same(p, length, "prepare")) return MYSQL_SQL_OTHER;
    if (rollback && (mysql_same(p, length, "to") || mysql_same(p, length, "work"))) {
        if (mysql_same(p, length, "to")) return MYSQL_SQL_OTHER;
        p += length;
        length = next_word(&p, end);
        if (mysql_same(p, length, "to")) return MYSQL_SQL_OTHER;
    }
    return MYSQL_SQL_COMMIT;
}
