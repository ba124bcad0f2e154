// What a client must know about a statement's text before sending it to PostgreSQL, and how placeholders become the
// server's own ($1, $2, …). Plain C, without ruby.h. The lexical rules follow the SQL manual, "Lexical Structure", and
// the server's scan.l.
//
// Placeholders are ? or :name. Both are recognized only where the server would read an operator: not in strings, quoted
// identifiers, dollar quotes or comments. An operator that contains a question mark is written with two: ??, ??|, ??&,
// @??. A text that contains $1 already has the server's placeholders and stays unchanged, including question marks.
#ifndef HEDDLE_WIRE_WIRE_POSTGRESQL_SQL_H
#define HEDDLE_WIRE_WIRE_POSTGRESQL_SQL_H

#include "wire/wire_postgresql_buffer.h"

// ---- tokens

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

struct pg_sql_scan {
    const uint8_t *p, *end;
    bool backslashes; // active in '…', too: standard_conforming_strings is off
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

// ---- statements

enum pg_sql_kind {
    PG_SQL_SELECT, // also VALUES and TABLE; WITH counts as its main statement
    PG_SQL_INSERT,
    PG_SQL_UPDATE,
    PG_SQL_DELETE,
    PG_SQL_MERGE,
    PG_SQL_BEGIN, // also START TRANSACTION
    PG_SQL_COMMIT,
    PG_SQL_ROLLBACK,
    PG_SQL_SAVEPOINT,
    PG_SQL_ROLLBACK_TO,
    PG_SQL_RELEASE,
    PG_SQL_PREPARE_TRANSACTION,
    PG_SQL_COMMIT_PREPARED,
    PG_SQL_ROLLBACK_PREPARED,
    PG_SQL_COPY_IN,  // FROM STDIN
    PG_SQL_COPY_OUT, // TO STDOUT
    PG_SQL_COPY,     // a file or program on the server
    PG_SQL_SET,
    PG_SQL_SET_LOCAL, // ends with the transaction: SET LOCAL, SET TRANSACTION, SET CONSTRAINTS
    PG_SQL_RESET,
    PG_SQL_DISCARD,
    PG_SQL_PREPARE,
    PG_SQL_EXECUTE,
    PG_SQL_DEALLOCATE,
    PG_SQL_DECLARE,
    PG_SQL_FETCH,
    PG_SQL_MOVE,
    PG_SQL_CLOSE_CURSOR,
    PG_SQL_LISTEN,
    PG_SQL_UNLISTEN,
    PG_SQL_NOTIFY,
    PG_SQL_LOCK,
    PG_SQL_EXPLAIN,
    PG_SQL_SHOW,
    PG_SQL_CALL,
    PG_SQL_DO,
    PG_SQL_DEFINITION, // CREATE, ALTER, DROP, TRUNCATE, GRANT, …
    PG_SQL_ANYTHING
};

struct pg_sql_statement {
    enum pg_sql_kind kind; // SELECT … INTO is a PG_SQL_DEFINITION
    bool session;          // it calls set_config, unless for the transaction alone, or takes an advisory lock
    struct pg_span text;   // without the semicolon
};

// The next statement that is not empty; false at the end. Includes the body of a function in BEGIN ATOMIC … END.
bool pg_sql_next_statement(struct pg_sql_scan *scan, struct pg_sql_statement *statement);

struct pg_sql {
    enum pg_sql_kind kind; // of the first statement
    uint64_t kinds;        // of all statements: a bit for each kind
    bool session;          // of any statement, see pg_sql_statement
    uint32_t statements;
    uint32_t highest;                   // $1 counts as 1; 0 without any
    uint32_t questions, escapes, names; // ?, ??, :name
    bool native;                        // the text has $1
    bool unterminated;                  // the server will refuse the text
};
void pg_sql_analyse(const uint8_t *p, const uint8_t *end, bool backslashes, struct pg_sql *sql);

// ---- placeholders

// The number of the named parameter, from 1; 0 if the name is unknown.
typedef uint32_t pg_sql_number(void *context, struct pg_span name);

struct pg_sql_rewriting {
    bool backslashes;
    // NULL: ? is a placeholder, and colons have no meaning. Otherwise :name is a placeholder, and ? has no meaning.
    pg_sql_number *number;
    void *context;
    // Output:
    uint32_t parameters;         // number of the server's parameters
    bool native;                 // the text has $1, and was not changed
    struct pg_span unknown_name; // of PG_UNKNOWN_NAME
};

// Appends the rewritten text to the buffer, without a final NUL. PG_TOO_MANY_PARAMETERS, PG_UNKNOWN_NAME and PG_NO_ROOM
// leave the buffer unchanged.
enum pg_written pg_sql_rewrite(struct pg_buffer *buffer, const uint8_t *p, const uint8_t *end,
                               struct pg_sql_rewriting *rewriting);

#endif
