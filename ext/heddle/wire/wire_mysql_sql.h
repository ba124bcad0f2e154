// What a client has to know of a statement's text before it is sent. Plain C, without ruby.h.
#ifndef HEDDLE_WIRE_WIRE_MYSQL_SQL_H
#define HEDDLE_WIRE_WIRE_MYSQL_SQL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum mysql_sql {
    MYSQL_SQL_PLAIN,   // reads or changes rows: select, insert, update, delete, replace, with
    MYSQL_SQL_SESSION, // such a one that may also set a variable of the user's, or take a lock by name
    MYSQL_SQL_COMMIT,  // ends the transaction it is in, be it by what it does besides (create table)
    MYSQL_SQL_OTHER
};

// By its first words; what is in brackets or behind comments, too.
enum mysql_sql mysql_sql_kind(const uint8_t *p, const uint8_t *end);

// How many parameters (?) it has; -1 where that depends on the server (its version or its sql_mode).
int mysql_sql_parameters(const uint8_t *p, const uint8_t *end);

#endif
