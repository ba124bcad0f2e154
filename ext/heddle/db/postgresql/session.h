// What is known of a session of PostgreSQL, and what its server says without being asked.
#ifndef HEDDLE_DB_POSTGRESQL_SESSION_H
#define HEDDLE_DB_POSTGRESQL_SESSION_H

#include "db/postgresql/protocol.h"

// As the server said last; false for a closed connection.
bool postgresql_in_transaction(VALUE self);

void postgresql_session_define(void);

#endif
