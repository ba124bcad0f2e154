// Ends a call of the driver from another thread.
//
// SQLCancel does that, but not in MariaDB's driver: its SQLCancel tries the connection's lock, and where nobody holds
// it, closes the statement (odbc_3_api.c of 3.1.15). SQLExecute takes that lock several times, so between two of them
// SQLCancel frees what the call is using. What it does else is a KILL QUERY over a second connection; here that is all.
#ifndef HEDDLE_ODBC_CANCELLING_H
#define HEDDLE_ODBC_CANCELLING_H

#include "session.h"

// Once connected, by the job's text: takes the text over where later cancels connect by it.
bool odbc_cancelling_begins(struct odbc_session *, struct odbc_job *);

// Ends the call that the job's statement is in. Waits for the server. May do nothing: too early, or no connection.
void odbc_cancel(struct odbc_session *);

#endif
