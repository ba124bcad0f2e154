// Ends a call of the driver from another thread.
//
// SQLCancel does that, but two drivers free what the call is using.
//
// SQLite's (sqlite3odbc.c of 0.9998) interrupts whatever runs on the connection, and then closes the statement that it
// was called for. So it is called for another statement, which never runs.
//
// MariaDB's driver tries the connection's lock, and where nobody holds it, closes the statement (odbc_3_api.c of
// 3.1.15). SQLExecute takes that lock several times, and between two of them SQLCancel comes through. What it does else
// is a KILL QUERY over a second connection; here that is all.
#ifndef HEDDLE_ODBC_CANCELLING_H
#define HEDDLE_ODBC_CANCELLING_H

#include "session.h"

// Once connected, by the job's text: takes the text over where later cancels connect by it.
bool odbc_cancelling_begins(struct odbc_session *, struct odbc_job *);

// Ends the call that the job's statement is in. Waits for the server. May do nothing: too early, or no connection.
void odbc_cancel(struct odbc_session *);

#endif
