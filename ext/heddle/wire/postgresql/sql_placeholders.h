// Rewrites placeholders to the server's own ($1, $2, …). Plain C, without ruby.h.
//
// Placeholders are ? or :name. An operator that contains a question mark is written with two: ??, ??|, ??&, @??. A text
// that contains $1 already has the server's placeholders and stays unchanged, including question marks.
#ifndef HEDDLE_WIRE_POSTGRESQL_SQL_PLACEHOLDERS_H
#define HEDDLE_WIRE_POSTGRESQL_SQL_PLACEHOLDERS_H

#include "wire/postgresql/sql_tokens.h"

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

// The same for the ? and ?? of a text without $1, where all of them are known: `count` offsets. Appends the text with
// $1, $2, …, and sets the number of parameters.
enum pg_written pg_sql_put_numbers(struct pg_buffer *buffer, const uint8_t *p, const uint8_t *end,
                                   const uint32_t *places, uint32_t count, uint32_t *parameters);

#endif
