// The functions that a statement calls, as far as its text tells: each may change the session, unless its name is that
// of one which does not. Triggers, views, operators and defaults call others. Plain C, without ruby.h.
#ifndef HEDDLE_WIRE_POSTGRESQL_SQL_CALLS_H
#define HEDDLE_WIRE_POSTGRESQL_SQL_CALLS_H

#include "wire/postgresql/sql_tokens.h"

struct pg_sql_calls {
    struct pg_span name; // the last word or quoted identifier; of a qualified name the last part
    bool named;          // nothing stands behind the name
    bool quoted, qualified;
    bool dotted;  // the last token is a dot
    bool lists;   // the last token is INTO, AS or another word behind whose name stand columns
    bool columns; // the name is such a name
};

// Notes the next token, whatever it is. Returns whether it is the parenthesis behind the name of a function that is not
// known to be harmless: calls->name.
bool pg_sql_note_call(struct pg_sql_calls *calls, const struct pg_sql_scan *scan);

// Whether a word in front of a parenthesis leaves nothing in the session: a keyword, a type or a common function.
bool pg_sql_is_harmless(struct pg_span word);

#endif
