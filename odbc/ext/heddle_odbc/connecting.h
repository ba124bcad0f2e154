// The jobs that concern the connection as a whole.
#ifndef HEDDLE_ODBC_CONNECTING_H
#define HEDDLE_ODBC_CONNECTING_H

#include "session.h"

// Connects by a connection string, for the wide or the narrow functions.
SQLRETURN odbc_driver_connect(SQLHDBC, bool wide, const struct odbc_buffer *text);

// Connects by the job's text; `number`: seconds, 0 for none.
void odbc_perform_connect(struct odbc_session *, struct odbc_job *);

// Turns autocommit off; `number`: the isolation, 0 for the connection's own.
void odbc_perform_begin(struct odbc_session *, struct odbc_job *);

// Commits, then turns autocommit on. If the commit fails, the transaction is still open.
void odbc_perform_commit(struct odbc_session *, struct odbc_job *);

// Rolls back, then turns autocommit on.
void odbc_perform_rollback(struct odbc_session *, struct odbc_job *);

// Asks whether the connection is dead; the answer is 1 then. Some drivers ask the server, some tell what they knew
// last.
void odbc_perform_check(struct odbc_session *, struct odbc_job *);

// Does nothing: released statements are freed before each job.
void odbc_perform_nothing(struct odbc_session *, struct odbc_job *);

#endif
