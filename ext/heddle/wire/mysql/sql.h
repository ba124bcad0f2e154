// What a client must know about a statement's text before sending it. Plain C, without ruby.h.
#ifndef HEDDLE_WIRE_MYSQL_SQL_H
#define HEDDLE_WIRE_MYSQL_SQL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum mysql_sql {
    MYSQL_SQL_PLAIN,   // reads or changes rows: select, insert, update, delete, replace, with, values, table
    MYSQL_SQL_SESSION, // like MYSQL_SQL_PLAIN, but may also set a user variable or take a named lock
    MYSQL_SQL_COMMIT,  // ends its transaction, possibly as a side effect (create table)
    MYSQL_SQL_OTHER
};

// Decides by the first words, including words in parentheses or after comments.
enum mysql_sql mysql_sql_kind(const uint8_t *p, const uint8_t *end);

// Whether a statement of the kind MYSQL_SQL_COMMIT or MYSQL_SQL_OTHER may change the session: true unless the statement
// is known to change none. Those of the other kinds are MYSQL_SQL_SESSION then.
bool mysql_sql_leaves_traces(const uint8_t *p, const uint8_t *end);

// How a statement without values is sent.
enum mysql_sql_way {
    MYSQL_WAY_PREPARED,   // may return rows of tables: as text, a FLOAT would have six digits
    MYSQL_WAY_TEXT,       // returns none: takes one round trip on MySQL, which refuses to prepare some of them
    MYSQL_WAY_DIAGNOSTICS // also shows what the statement before left, which a refused prepare would replace
};
enum mysql_sql_way mysql_sql_way(const uint8_t *p, const uint8_t *end);

// Whether the statement asks for what another one has left in the session: the key that it has made, how many rows it
// has found, a system variable. In strings and comments they count, too.
bool mysql_sql_refers_back(const uint8_t *p, const uint8_t *end);

// Whether the rows of its result are rows that it has changed: insert, update, delete or replace … returning.
bool mysql_sql_writes(const uint8_t *p, const uint8_t *end);

enum mysql_placeholder {
    MYSQL_PLACEHOLDER_NONE, // none is left
    MYSQL_PLACEHOLDER_QUESTION,
    MYSQL_PLACEHOLDER_NAME,   // :name
    MYSQL_PLACEHOLDER_UNKNOWN // depends on the server (its version or its sql_mode)
};

struct mysql_placeholder_scan {
    const uint8_t *start, *p, *end; // begin with p = start
    const uint8_t *begin;           // of the last placeholder, which ends at p
};

// The next placeholder that is not in a string, a quoted identifier or a comment. A colon behind a word or a colon
// begins no name.
enum mysql_placeholder mysql_sql_placeholder(struct mysql_placeholder_scan *scan);

// The number of parameters (?), or -1 if it depends on the server (its version or its sql_mode).
int mysql_sql_parameters(const uint8_t *p, const uint8_t *end);

#endif
