// Splits the text of statements for PostgreSQL into tokens. Plain C, without ruby.h. The lexical rules follow the SQL
// manual, "Lexical Structure", and the server's scan.l.
//
// ?, ?? and :name are tokens only where the server would read an operator: not in strings, quoted identifiers, dollar
// quotes or comments.
#ifndef HEDDLE_WIRE_POSTGRESQL_SQL_TOKENS_H
#define HEDDLE_WIRE_POSTGRESQL_SQL_TOKENS_H

#include "wire/postgresql/buffer.h"

enum pg_sql_token {
    PG_SQL_END,
    PG_SQL_WORD,   // a keyword, an identifier
    PG_SQL_QUOTED, // "identifier"
    PG_SQL_STRING, // '…', E'…', B'…', $tag$…$tag$
    PG_SQL_NUMBER,
    PG_SQL_PARAMETER,        // $1
    PG_SQL_QUESTION,         // ?
    PG_SQL_ESCAPED_QUESTION, // ??
    PG_SQL_NAME,             // :name
    PG_SQL_OPEN,             // (
    PG_SQL_CLOSE,
    PG_SQL_OPEN_BRACKET, // [
    PG_SQL_CLOSE_BRACKET,
    PG_SQL_COMMA,
    PG_SQL_SEMICOLON,
    PG_SQL_OTHER,       // operators, including casts
    PG_SQL_UNTERMINATED // a string, a quoted identifier or a comment that does not end
};

// Where the first ? and ?? of a text are.
enum { PG_SQL_PLACES = 8 };
struct pg_sql_places {
    const uint8_t *text;
    uint32_t at[PG_SQL_PLACES];
};

struct pg_sql_scan {
    const uint8_t *p, *end;
    struct pg_sql_places *places; // are noted there; NULL for none
    bool backslashes;             // active in '…', too: standard_conforming_strings is off
    // The last token.
    enum pg_sql_token token;
    struct pg_span text;
    uint32_t number; // of PG_SQL_PARAMETER; 0 for a number that no statement can have
    // Found in the text so far.
    uint32_t brackets;
    uint32_t highest; // number of a $1
    uint32_t questions, escapes, names;
    bool native, unterminated; // the text has $1; a token does not end
};

static inline void pg_sql_begin(struct pg_sql_scan *scan, const uint8_t *p, const uint8_t *end, bool backslashes)
{
    *scan = (struct pg_sql_scan){.p = p, .end = end, .backslashes = backslashes};
}

// Reads the next token, after white space and comments.
enum pg_sql_token pg_sql_next(struct pg_sql_scan *scan);

// Whether the byte may follow the first byte of a word.
bool pg_sql_in_word(uint8_t byte);

#endif
