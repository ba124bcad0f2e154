#include "wire/wire_postgresql_sql.h"

// ---- tokens

// Classes of bytes. A table, because each byte of each new statement is classified.
enum { SPACE = 1, DIGIT = 2, FIRST = 4, LATER = 8 };
#define LETTER (FIRST | LATER)
static const uint8_t classes[256] = {
    ['\t' ... '\r'] = SPACE, [' '] = SPACE,  ['0' ... '9'] = DIGIT | LATER, ['$'] = LATER, ['A' ... 'Z'] = LETTER,
    ['a' ... 'z'] = LETTER,  ['_'] = LETTER, [0x80 ... 0xff] = LETTER,
};
#undef LETTER

static bool is_space(uint8_t byte)
{
    return classes[byte] & SPACE;
}

static bool is_digit(uint8_t byte)
{
    return classes[byte] & DIGIT;
}

static bool begins_word(uint8_t byte)
{
    return classes[byte] & FIRST;
}

static bool is_word(uint8_t byte)
{
    return classes[byte] & LATER;
}

static const uint8_t *line_end(const uint8_t *p, const uint8_t *end)
{
    while (p < end && *p != '\n' && *p != '\r')
        p++;
    return p;
}

// The end of the comment that begins at `p`; comments nest. NULL if the comment does not end.
static const uint8_t *behind_comment(const uint8_t *p, const uint8_t *end)
{
    size_t depth = 0;
    while (end - p >= 2) {
        if (p[0] == '/' && p[1] == '*') {
            depth++;
            p += 2;
        } else if (p[0] == '*' && p[1] == '/') {
            p += 2;
            if (--depth == 0) return p;
        } else {
            p++;
        }
    }
    return NULL;
}

// Moves *p behind white space and comments. False if a comment does not end.
static bool skip_space(const uint8_t **p, const uint8_t *end)
{
    while (*p < end) {
        const uint8_t *at = *p;
        if (is_space(*at)) {
            *p = at + 1;
        } else if (end - at >= 2 && at[0] == '-' && at[1] == '-') {
            *p = line_end(at, end);
        } else if (end - at >= 2 && at[0] == '/' && at[1] == '*') {
            at = behind_comment(at, end);
            if (!at) return false;
            *p = at;
        } else {
            break;
        }
    }
    return true;
}

// The end of the quoted text that `p` is in; a doubled quote is part of the text. NULL if it does not end.
static const uint8_t *behind_quote(const uint8_t *p, const uint8_t *end, uint8_t quote, bool backslashes)
{
    while (p < end) {
        if (backslashes && *p == '\\') {
            if (end - p < 2) return NULL;
            p += 2;
        } else if (*p == quote) {
            if (end - p < 2 || p[1] != quote) return p + 1;
            p += 2;
        } else {
            p++;
        }
    }
    return NULL;
}

// The start of a string's continuation: another quote after white space with a newline. NULL without one.
static const uint8_t *continuation(const uint8_t *p, const uint8_t *end)
{
    bool line = false;
    while (p < end) {
        if (is_space(*p)) {
            line = line || *p == '\n' || *p == '\r';
            p++;
        } else if (end - p >= 2 && p[0] == '-' && p[1] == '-') {
            p = line_end(p, end);
        } else {
            return line && *p == '\'' ? p : NULL;
        }
    }
    return NULL;
}

// The end of a string whose text begins at `p`. Its continuations follow the same rule for backslashes.
static const uint8_t *behind_string(const uint8_t *p, const uint8_t *end, bool backslashes)
{
    p = behind_quote(p, end, '\'', backslashes);
    if (!backslashes) return p;
    for (const uint8_t *more; p && (more = continuation(p, end));)
        p = behind_quote(more + 1, end, '\'', true);
    return p;
}

// The end of $tag$…$tag$ that begins at `p`; `p` itself if none begins there, NULL if it does not end.
static const uint8_t *behind_dollars(const uint8_t *p, const uint8_t *end)
{
    const uint8_t *tag = p + 1;
    if (tag < end && begins_word(*tag))
        while (tag < end && is_word(*tag) && *tag != '$')
            tag++;
    if (tag >= end || *tag != '$') return p;
    size_t length = (size_t)(tag + 1 - p);
    for (const uint8_t *at = tag + 1; (size_t)(end - at) >= length; at++) {
        at = memchr(at, '$', (size_t)(end - at));
        if (!at || (size_t)(end - at) < length) return NULL;
        if (memcmp(at, p, length) == 0) return at + length;
    }
    return NULL;
}

static const uint8_t *behind_word(const uint8_t *p, const uint8_t *end)
{
    while (p < end && is_word(*p))
        p++;
    return p;
}

static const uint8_t *behind_name(const uint8_t *p, const uint8_t *end)
{
    while (p < end && is_word(*p) && *p != '$')
        p++;
    return p;
}

// A word, or a string whose prefix looks like one.
static const uint8_t *word(struct pg_sql_scan *scan, const uint8_t *p, enum pg_sql_token *token)
{
    const uint8_t *end = scan->end;
    uint8_t prefix = *p | 0x20;
    *token = PG_SQL_STRING;
    if (end - p >= 2 && p[1] == '\'') {
        if (prefix == 'e') return behind_string(p + 2, end, true);
        // The doubled quote of B'…' and X'…' is harmless: no digit follows it.
        if (prefix == 'b' || prefix == 'x') return behind_quote(p + 2, end, '\'', false);
        if (prefix == 'n') return behind_string(p + 2, end, scan->backslashes);
    }
    if (prefix == 'u' && end - p >= 3 && p[1] == '&') {
        if (p[2] == '\'') return behind_quote(p + 3, end, '\'', false);
        *token = PG_SQL_QUOTED;
        if (p[2] == '"') return behind_quote(p + 3, end, '"', false);
    }
    *token = PG_SQL_WORD;
    return behind_word(p, end);
}

static const uint8_t *dollar(struct pg_sql_scan *scan, const uint8_t *p, enum pg_sql_token *token)
{
    const uint8_t *end = scan->end;
    if (end - p >= 2 && is_digit(p[1])) {
        uint32_t number = 0;
        const uint8_t *at = p + 1;
        for (; at < end && is_digit(*at); at++)
            number = number > PG_PARAMETERS_MOST ? number : number * 10 + (uint32_t)(*at - '0');
        scan->native = true;
        scan->number = number > PG_PARAMETERS_MOST ? 0 : number;
        if (scan->number > scan->highest) scan->highest = scan->number;
        *token = PG_SQL_PARAMETER;
        return at;
    }
    const uint8_t *behind = behind_dollars(p, end);
    *token = behind == p ? PG_SQL_OTHER : PG_SQL_STRING;
    return behind == p ? p + 1 : behind;
}

static bool ends_expression(enum pg_sql_token token)
{
    return token == PG_SQL_WORD || token == PG_SQL_QUOTED || token == PG_SQL_STRING || token == PG_SQL_NUMBER ||
           token == PG_SQL_PARAMETER || token == PG_SQL_QUESTION || token == PG_SQL_NAME || token == PG_SQL_CLOSE ||
           token == PG_SQL_CLOSE_BRACKET;
}

// Inside brackets a colon may belong to a slice: [low:high], [1 :high]. After a word and a space it does not, because
// that word may be a keyword: [case when :name …].
static bool slices(const struct pg_sql_scan *scan, const uint8_t *colon)
{
    if (scan->brackets == 0 || !ends_expression(scan->token)) return false;
    return scan->token != PG_SQL_WORD || scan->text.at + scan->text.length == colon;
}

static const uint8_t *colon(struct pg_sql_scan *scan, const uint8_t *p, enum pg_sql_token *token)
{
    *token = PG_SQL_OTHER;
    if (scan->end - p < 2) return p + 1;
    if (p[1] == ':' || p[1] == '=') return p + 2;
    if (!begins_word(p[1]) || slices(scan, p)) return p + 1;
    *token = PG_SQL_NAME;
    scan->names++;
    return behind_name(p + 1, scan->end);
}

static const uint8_t *question(struct pg_sql_scan *scan, const uint8_t *p, enum pg_sql_token *token)
{
    bool escaped = scan->end - p >= 2 && p[1] == '?';
    *token = escaped ? PG_SQL_ESCAPED_QUESTION : PG_SQL_QUESTION;
    scan->escapes += escaped;
    scan->questions += !escaped;
    return p + 1 + escaped;
}

// The end of the token at `p`; NULL if the token does not end.
static const uint8_t *token_end(struct pg_sql_scan *scan, const uint8_t *p, enum pg_sql_token *token)
{
    const uint8_t *end = scan->end;
    switch (*p) {
    case '\'':
        *token = PG_SQL_STRING;
        return behind_string(p + 1, end, scan->backslashes);
    case '"':
        *token = PG_SQL_QUOTED;
        return behind_quote(p + 1, end, '"', false);
    case '$':
        return dollar(scan, p, token);
    case '?':
        return question(scan, p, token);
    case ':':
        return colon(scan, p, token);
    case '(':
        *token = PG_SQL_OPEN;
        return p + 1;
    case ')':
        *token = PG_SQL_CLOSE;
        return p + 1;
    case '[':
        *token = PG_SQL_OPEN_BRACKET;
        scan->brackets++;
        return p + 1;
    case ']':
        *token = PG_SQL_CLOSE_BRACKET;
        if (scan->brackets > 0) scan->brackets--;
        return p + 1;
    case ',':
        *token = PG_SQL_COMMA;
        return p + 1;
    case ';':
        *token = PG_SQL_SEMICOLON;
        scan->brackets = 0;
        return p + 1;
    default:
        break;
    }
    if (begins_word(*p)) return word(scan, p, token);
    if (is_digit(*p)) {
        *token = PG_SQL_NUMBER;
        while (p < end && ((is_word(*p) && *p != '$') || *p == '.'))
            p++;
        return p;
    }
    *token = PG_SQL_OTHER;
    return p + 1;
}

enum pg_sql_token pg_sql_next(struct pg_sql_scan *scan)
{
    enum pg_sql_token token = PG_SQL_END;
    bool terminated = skip_space(&scan->p, scan->end);
    const uint8_t *p = scan->p, *behind = p;
    if (terminated && p < scan->end) {
        behind = token_end(scan, p, &token);
        terminated = behind != NULL;
    }
    if (!terminated) {
        scan->unterminated = true;
        token = PG_SQL_UNTERMINATED;
        behind = scan->end;
    }
    scan->token = token;
    scan->text = (struct pg_span){p, (size_t)(behind - p)};
    scan->p = behind;
    return token;
}

// ---- statements

static inline bool is(const struct pg_sql_scan *scan, const char *keyword)
{
    // Every word of a statement is compared with some twenty keywords: most differ in the first letter.
    if (scan->token != PG_SQL_WORD || (scan->text.at[0] | 0x20) != (uint8_t)keyword[0]) return false;
    if (strlen(keyword) != scan->text.length) return false;
    for (size_t i = 0; i < scan->text.length; i++) {
        uint8_t byte = scan->text.at[i];
        if (byte >= 'A' && byte <= 'Z') byte |= 0x20;
        if (byte != (uint8_t)keyword[i]) return false;
    }
    return true;
}

static const struct {
    const char *keyword;
    enum pg_sql_kind kind;
} kinds[] = {{"select", PG_SQL_SELECT},
             {"values", PG_SQL_SELECT},
             {"table", PG_SQL_SELECT},
             {"insert", PG_SQL_INSERT},
             {"update", PG_SQL_UPDATE},
             {"delete", PG_SQL_DELETE},
             {"merge", PG_SQL_MERGE},
             {"begin", PG_SQL_BEGIN},
             {"commit", PG_SQL_COMMIT},
             {"end", PG_SQL_COMMIT},
             {"rollback", PG_SQL_ROLLBACK},
             {"abort", PG_SQL_ROLLBACK},
             {"savepoint", PG_SQL_SAVEPOINT},
             {"release", PG_SQL_RELEASE},
             {"set", PG_SQL_SET},
             {"reset", PG_SQL_RESET},
             {"discard", PG_SQL_DISCARD},
             {"prepare", PG_SQL_PREPARE},
             {"execute", PG_SQL_EXECUTE},
             {"declare", PG_SQL_DECLARE},
             {"deallocate", PG_SQL_DEALLOCATE},
             {"fetch", PG_SQL_FETCH},
             {"move", PG_SQL_MOVE},
             {"close", PG_SQL_CLOSE_CURSOR},
             {"listen", PG_SQL_LISTEN},
             {"unlisten", PG_SQL_UNLISTEN},
             {"notify", PG_SQL_NOTIFY},
             {"lock", PG_SQL_LOCK},
             {"explain", PG_SQL_EXPLAIN},
             {"show", PG_SQL_SHOW},
             {"call", PG_SQL_CALL},
             {"do", PG_SQL_DO},
             {"copy", PG_SQL_COPY},
             {"create", PG_SQL_DEFINITION},
             {"alter", PG_SQL_DEFINITION},
             {"drop", PG_SQL_DEFINITION},
             {"truncate", PG_SQL_DEFINITION},
             {"grant", PG_SQL_DEFINITION},
             {"revoke", PG_SQL_DEFINITION},
             {"comment", PG_SQL_DEFINITION},
             {"security", PG_SQL_DEFINITION},
             {"refresh", PG_SQL_DEFINITION},
             {"import", PG_SQL_DEFINITION},
             {"reassign", PG_SQL_DEFINITION},
             {"reindex", PG_SQL_DEFINITION},
             {"start", PG_SQL_BEGIN},
             {"with", PG_SQL_ANYTHING}};

static enum pg_sql_kind kind_of_word(const struct pg_sql_scan *scan)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (is(scan, kinds[i].keyword)) return kinds[i].kind;
    return PG_SQL_ANYTHING;
}

// Moves to the next token outside of parentheses; false at the statement's end.
static bool next_outside(struct pg_sql_scan *scan)
{
    size_t depth = 0;
    for (;;) {
        switch (pg_sql_next(scan)) {
        case PG_SQL_END:
        case PG_SQL_UNTERMINATED:
        case PG_SQL_SEMICOLON:
            return false;
        case PG_SQL_OPEN:
            depth++;
            break;
        case PG_SQL_CLOSE:
            if (depth == 0) return false; // of (with … select …)
            depth--;
            break;
        default:
            if (depth == 0) return true;
        }
    }
}

// The kind of the main statement after WITH's queries, whose names may be any word.
static enum pg_sql_kind kind_of_with(struct pg_sql_scan *scan)
{
    bool name = true;
    while (next_outside(scan)) {
        if (name && is(scan, "recursive")) continue;
        if (!name) {
            enum pg_sql_kind kind = kind_of_word(scan);
            if (kind <= PG_SQL_MERGE) return kind;
        }
        name = scan->token == PG_SQL_COMMA;
    }
    return PG_SQL_ANYTHING;
}

static enum pg_sql_kind kind_of_copy(struct pg_sql_scan *scan)
{
    while (next_outside(scan)) {
        bool in = is(scan, "from");
        if (!in && !is(scan, "to")) continue;
        pg_sql_next(scan);
        if (in && is(scan, "stdin")) return PG_SQL_COPY_IN;
        if (!in && is(scan, "stdout")) return PG_SQL_COPY_OUT;
        break;
    }
    return PG_SQL_COPY;
}

// The kind of a statement whose first token has just been read; `scan` is a copy.
static enum pg_sql_kind kind_of(struct pg_sql_scan scan)
{
    while (scan.token == PG_SQL_OPEN)
        pg_sql_next(&scan);
    enum pg_sql_kind kind = kind_of_word(&scan);
    if (is(&scan, "with")) return kind_of_with(&scan);
    if (kind == PG_SQL_COPY) return kind_of_copy(&scan);
    bool start = is(&scan, "start");
    if (kind != PG_SQL_COMMIT && kind != PG_SQL_ROLLBACK && kind != PG_SQL_SET && kind != PG_SQL_PREPARE && !start)
        return kind;
    pg_sql_next(&scan);
    if (start) return is(&scan, "transaction") ? PG_SQL_BEGIN : PG_SQL_ANYTHING;
    switch (kind) {
    case PG_SQL_COMMIT:
        return is(&scan, "prepared") ? PG_SQL_COMMIT_PREPARED : kind;
    case PG_SQL_ROLLBACK:
        if (is(&scan, "prepared")) return PG_SQL_ROLLBACK_PREPARED;
        if (is(&scan, "work") || is(&scan, "transaction")) pg_sql_next(&scan);
        return is(&scan, "to") ? PG_SQL_ROLLBACK_TO : kind;
    case PG_SQL_PREPARE:
        return is(&scan, "transaction") ? PG_SQL_PREPARE_TRANSACTION : kind;
    default:
        return is(&scan, "local") || is(&scan, "transaction") || is(&scan, "constraints") ? PG_SQL_SET_LOCAL : kind;
    }
}

// Tells whether a semicolon ends the statement: not in parentheses (a rule's actions), nor in a function's body
// (BEGIN ATOMIC … END). psql recognizes these by the same words.
struct nesting {
    size_t parentheses, blocks;
    uint32_t words; // of the statement, as far as they matter
    bool create, routine;
};

static void nest(struct nesting *nesting, const struct pg_sql_scan *scan)
{
    if (scan->token == PG_SQL_OPEN) nesting->parentheses++;
    if (scan->token == PG_SQL_CLOSE && nesting->parentheses > 0) nesting->parentheses--;
    if (scan->token != PG_SQL_WORD) return;
    if (nesting->words < 4) { // create or replace function
        nesting->words++;
        if (nesting->words == 1) nesting->create = is(scan, "create");
        if (is(scan, "function") || is(scan, "procedure")) nesting->routine = nesting->create;
    }
    if (!nesting->routine || nesting->parentheses > 0) return;
    if (is(scan, "begin") || (nesting->blocks > 0 && is(scan, "case"))) nesting->blocks++;
    if (nesting->blocks > 0 && is(scan, "end")) nesting->blocks--;
}

// What a statement that returns rows does to the session.
struct effects {
    size_t parentheses, config; // open ones; those of the set_config whose arguments are being read, 0 for none
    bool called;                // the last token is set_config
    bool inserts, truth;        // … INSERT or MERGE; … true
    bool into, session;
};

static void note_effects(struct effects *effects, const struct pg_sql_scan *scan)
{
    if (scan->token == PG_SQL_OPEN) {
        effects->parentheses++;
        if (effects->called) effects->config = effects->parentheses;
    } else if (scan->token == PG_SQL_CLOSE && effects->parentheses > 0) {
        if (effects->config == effects->parentheses) {
            effects->session = effects->session || !effects->truth;
            effects->config = 0;
        }
        effects->parentheses--;
    } else if (scan->token == PG_SQL_WORD) {
        effects->into = effects->into || (is(scan, "into") && !effects->inserts);
        effects->session = effects->session || is(scan, "pg_advisory_lock") || is(scan, "pg_try_advisory_lock") ||
                           is(scan, "pg_advisory_lock_shared") || is(scan, "pg_try_advisory_lock_shared");
    }
    effects->called = is(scan, "set_config");
    effects->inserts = is(scan, "insert") || is(scan, "merge");
    effects->truth = is(scan, "true");
}

bool pg_sql_next_statement(struct pg_sql_scan *scan, struct pg_sql_statement *statement)
{
    while (pg_sql_next(scan) == PG_SQL_SEMICOLON)
        ;
    if (scan->token == PG_SQL_END) return false;
    const uint8_t *begin = scan->text.at, *last = begin + scan->text.length;
    statement->kind = kind_of(*scan);
    struct nesting nesting = {0};
    struct effects effects = {0};
    nest(&nesting, scan);
    note_effects(&effects, scan);
    while (pg_sql_next(scan) != PG_SQL_END) {
        nest(&nesting, scan);
        note_effects(&effects, scan);
        if (scan->token == PG_SQL_SEMICOLON && nesting.parentheses == 0 && nesting.blocks == 0) break;
        last = scan->text.at + scan->text.length;
    }
    if (statement->kind == PG_SQL_SELECT && effects.into) statement->kind = PG_SQL_DEFINITION;
    statement->session = effects.session;
    statement->text = (struct pg_span){begin, (size_t)(last - begin)};
    return true;
}

void pg_sql_analyse(const uint8_t *p, const uint8_t *end, bool backslashes, struct pg_sql *sql)
{
    struct pg_sql_scan scan;
    struct pg_sql_statement statement;
    *sql = (struct pg_sql){.kind = PG_SQL_ANYTHING};
    for (pg_sql_begin(&scan, p, end, backslashes); pg_sql_next_statement(&scan, &statement); sql->statements++) {
        if (sql->statements == 0) sql->kind = statement.kind;
        sql->kinds |= UINT64_C(1) << statement.kind;
        sql->session = sql->session || statement.session;
    }
    sql->highest = scan.highest;
    sql->questions = scan.questions;
    sql->escapes = scan.escapes;
    sql->names = scan.names;
    sql->native = scan.native;
    sql->unterminated = scan.unterminated;
}

// ---- placeholders

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
    if (buffer->length > begin && is_word(at[buffer->length - 1])) at[buffer->length++] = ' ';
    at[buffer->length++] = '$';
    memcpy(at + buffer->length, digits + sizeof digits - count, count);
    buffer->length += count;
    if (behind < end && is_word(*behind)) at[buffer->length++] = ' ';
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
