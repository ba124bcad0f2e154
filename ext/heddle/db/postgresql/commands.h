// Statements and portals of a connection to PostgreSQL.
#ifndef HEDDLE_DB_POSTGRESQL_COMMANDS_H
#define HEDDLE_DB_POSTGRESQL_COMMANDS_H

#include "db/connection.h"
#include "db/postgresql/protocol.h"

extern struct db_operations postgresql_operations;

// The text for the server. All that may raise for the caller's fault, except for a text or value that is too long, and
// all that may run Ruby code comes here.
VALUE postgresql_make_ready(struct postgresql_protocol *protocol, VALUE sql, VALUE arguments,
                            struct postgresql_arguments *ready);
void postgresql_put_ready(struct postgresql_protocol *protocol, VALUE sql, const struct postgresql_arguments *ready,
                          VALUE name, uint32_t rows);

// Both: Parse, Bind, Describe and Execute of a statement that is not kept, into protocol->request. `name` of its
// portal, nil for none; `rows` at most, 0 for all. May run Ruby code, and raises for the caller's fault.
void postgresql_put_new(struct postgresql_protocol *protocol, VALUE sql, VALUE arguments, VALUE name, uint32_t rows);

void postgresql_commands_define(void);

#endif
