// What a client must know about a statement's text before sending it to PostgreSQL: its kind, what it changes in the
// session, and its placeholders. Plain C, without ruby.h.
#ifndef HEDDLE_WIRE_POSTGRESQL_SQL_H
#define HEDDLE_WIRE_POSTGRESQL_SQL_H

#include "wire/postgresql/sql_tokens.h"

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
    bool session;          // it calls set_config, unless for the transaction alone
    bool calls;            // it calls functions that may change the session: wire/postgresql/sql_calls.h
    struct pg_span text;   // without the semicolon
};

// The next statement that is not empty; false at the end. Includes the body of a function in BEGIN ATOMIC … END.
bool pg_sql_next_statement(struct pg_sql_scan *scan, struct pg_sql_statement *statement);

struct pg_sql {
    enum pg_sql_kind kind; // of the first statement
    uint64_t kinds;        // of all statements: a bit for each kind
    bool session, calls;   // of any statement, see pg_sql_statement
    uint32_t statements;
    uint32_t highest;                   // $1 counts as 1; 0 without any
    uint32_t questions, escapes, names; // ?, ??, :name
    bool native;                        // the text has $1
    bool unterminated;                  // the server will refuse the text
    uint32_t places[PG_SQL_PLACES];     // of the first ? and ??, from the text's start
};
void pg_sql_analyse(const uint8_t *p, const uint8_t *end, bool backslashes, struct pg_sql *sql);

#endif
