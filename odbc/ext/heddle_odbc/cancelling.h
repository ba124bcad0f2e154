// Ends a call of the driver from another thread.
//
// SQLCancel does that, but in two drivers it frees memory that the call is using.
//
// SQLite's driver (sqlite3odbc.c of 0.9998) interrupts all calls on the connection, and then closes the statement that
// SQLCancel was called for. So Heddle calls SQLCancel for another statement, which never runs.
//
// MariaDB's driver tries the connection's lock, and closes the statement if the lock is free (odbc_3_api.c of 3.1.15).
// SQLExecute takes that lock several times, and between two of them SQLCancel finds it free. If the lock is taken,
// SQLCancel sends KILL QUERY over a second connection. Heddle does only that.
#ifndef HEDDLE_ODBC_CANCELLING_H
#define HEDDLE_ODBC_CANCELLING_H

#include "session.h"

// Call this once connected by the job's text. Takes the text over if later cancels connect by it.
bool odbc_cancelling_begins(struct odbc_session *, struct odbc_job *);

// Ends the call that the job's statement is in. Waits for the server. May do nothing: too early, or no connection.
void odbc_cancel(struct odbc_session *);

#endif
