#include "wire/postgresql/sql_tokens.h"

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

static bool pg_is_digit(uint8_t byte)
{
    return classes[byte] & DIGIT;
}

static bool begins_word(uint8_t byte)
{
    return classes[byte] & FIRST;
}

static bool sql_tokens_is_word(uint8_t byte)
{
    return classes[byte] & LATER;
}

bool pg_sql_in_word(uint8_t byte)
{
    return sql_tokens_is_word(byte);
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
        while (tag < end && sql_tokens_is_word(*tag) && *tag != '$')
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
    while (p < end && sql_tokens_is_word(*p))
        p++;
    return p;
}

static const uint8_t *behind_name(const uint8_t *p, const uint8_t *end)
{
    while (p < end && sql_tokens_is_word(*p) && *p != '$')
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
    if (end - p >= 2 && pg_is_digit(p[1])) {
        uint32_t number = 0;
        const uint8_t *at = p + 1;
        for (; at < end && pg_is_digit(*at); at++)
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
    uint32_t before = scan->questions + scan->escapes;
    if (scan->places && before < PG_SQL_PLACES) scan->places->at[before] = (uint32_t)(p - scan->places->text);
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
    case '\'': *token = PG_SQL_STRING; return behind_string(p + 1, end, scan->backslashes);
    case '"': *token = PG_SQL_QUOTED; return behind_quote(p + 1, end, '"', false);
    case '$': return dollar(scan, p, token);
    case '?': return question(scan, p, token);
    case ':': return colon(scan, p, token);
    case '(': *token = PG_SQL_OPEN; return p + 1;
    case ')': *token = PG_SQL_CLOSE; return p + 1;
    case '[':
        *token = PG_SQL_OPEN_BRACKET;
        scan->brackets++;
        return p + 1;
    case ']':
        *token = PG_SQL_CLOSE_BRACKET;
        if (scan->brackets > 0) scan->brackets--;
        return p + 1;
    case ',': *token = PG_SQL_COMMA; return p + 1;
    case ';':
        *token = PG_SQL_SEMICOLON;
        scan->brackets = 0;
        return p + 1;
    default: break;
    }
    if (begins_word(*p)) return word(scan, p, token);
    if (pg_is_digit(*p)) {
        *token = PG_SQL_NUMBER;
        while (p < end && ((sql_tokens_is_word(*p) && *p != '$') || *p == '.'))
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
