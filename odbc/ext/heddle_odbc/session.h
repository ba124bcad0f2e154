// One connection: a native thread that alone calls the driver, and runs one job after another.
//
// Ruby never waits inside a driver. It fills in the job, calls odbc_session_start, and waits until the pipe is
// readable; in between the job belongs to the thread. Nothing that a job refers to is Ruby's: a driver call that never
// returns keeps its thread, this struct and the statement, and nothing else.
//
// Danger: `lock` is held for moments only and never during a call of the driver, since finalizers take it. A child of
// fork has none of the threads, and perhaps a lock that is held for ever: it must call nothing here but
// odbc_session_forked.
#ifndef HEDDLE_ODBC_SESSION_H
#define HEDDLE_ODBC_SESSION_H

#include "diagnostics.h"
#include "parameters.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

struct odbc_session;
struct odbc_statement;

enum { ODBC_NAMES = 4, ODBC_KILL_BYTES = 40 };

// Handed over as a whole: see above.
struct odbc_job {
    void (*perform)(struct odbc_session *, struct odbc_job *);
    struct odbc_statement *statement;     // whose call odbc_session_cancel stops
    struct odbc_buffer text;              // SQL, or the connection string, for the wide or the narrow functions
    struct odbc_buffer names[ODBC_NAMES]; // catalog, schema, table and types of the catalog functions
    bool named[ODBC_NAMES];
    struct odbc_parameters parameters;
    size_t limit;      // rows to fetch
    SQLINTEGER number; // an attribute, an isolation, a number of seconds
    bool failed;
    bool miscounted; // the statement has not as many parameters as there are values
    SQLINTEGER answer;
    struct odbc_diagnostics diagnostics;
};

// What the driver says that it can do, asked once.
struct odbc_abilities {
    struct odbc_buffer
        text; // SQL_DBMS_NAME, SQL_DBMS_VER, SQL_DRIVER_NAME, the quote, SQL_SERVER_NAME, the escape: each with a NUL
    SQLUINTEGER isolations, isolation, data_extensions;
    SQLUSMALLINT transactions, activities, at_commit, at_rollback;
    bool describes_parameters;
    bool cancels_fetch; // whether SQLCancel may come in the middle of SQLFetch
    bool loose;         // whether a column's type does not bind its values: SQLite
    bool dates_as_text; // whether only the text of a date tells that the driver could not read it: PostgreSQL
};

struct odbc_session {
    bool wide;       // whether text goes through the wide functions
    bool reads_utf8; // … but is read as the bytes that the server sends: a driver ends wide ones at a NUL
    SQLHENV environment;
    SQLHDBC connection;
    struct odbc_abilities abilities;
    char kill[ODBC_KILL_BYTES]; // the SQL that ends its query from another connection; empty: SQLCancel does
    struct odbc_buffer source;  // … and by what that one connects, with the password
    SQLHSTMT spare;             // its SQLCancel ends all statements of the connection; or NULL
    struct odbc_job job;
    bool connected, manual;            // whether transactions end by SQLEndTran
    SQLUINTEGER isolation_before;      // 0: unchanged
    unsigned epoch;                    // a statement of an earlier one has to be prepared again
    struct odbc_statement *statements; // that have a handle of the driver's

    pid_t owner;
    atomic_bool cancelled; // whether the job is to end before its next call of the driver
    int wake;              // the pipe's writing end
    pthread_mutex_t lock;
    pthread_cond_t changed;
    // Under the lock:
    int references; // Ruby's objects, the thread, a thread that cancels
    bool busy, ending, ended, cancelling;
    bool calling;                    // the job is in a call that may be cancelled
    int cancels;                     // of this job
    struct odbc_statement *released; // to be freed with the next job
    struct odbc_statement *freeing;  // … with this job: none of them is the job's own
    size_t releases;
};

// A session whose thread runs; NULL without memory or thread. `wake`: it is closed at the end.
struct odbc_session *odbc_session_new(bool wide, int wake);

// Whether this process is a child of the one that connected.
bool odbc_session_forked(const struct odbc_session *);

// Hands the job over. The session must not be busy, nor ending.
void odbc_session_start(struct odbc_session *);

// Whether the job that was started is still the thread's.
bool odbc_session_busy(struct odbc_session *);

// Around a call of the driver that may be cancelled: one that waits, or computes. Outside of these nothing is
// cancelled, for drivers take SQLCancel for SQLFreeStmt(SQL_CLOSE) there, and free what the job is using. The second
// one waits for a cancel that has begun, and returns the call's outcome.
void odbc_call_begins(struct odbc_session *);
SQLRETURN odbc_call_ended(struct odbc_session *, SQLRETURN outcome);

// Has the job end early: cancels if a statement may be running, on a thread of its own, since that may connect to the
// server. Until it has been done, the job does not go on. Before a call of the driver has reached the server a cancel
// does nothing, so call this again when the job does not end. Returns how many cancels there were.
int odbc_session_cancel(struct odbc_session *);

// Has the thread disconnect and end, after the call that it is in, which is cancelled: a query may run for ever. Does
// not wait.
void odbc_session_end(struct odbc_session *);

// Drops a reference; whoever drops the last one frees the session.
void odbc_session_unreference(struct odbc_session *);

// Once a process, when the extension is loaded. False without memory.
bool odbc_sessions_begin(void);

// Before the process ends: no thread begins to disconnect any more, since libraries' own ends run by now.
void odbc_sessions_rest(void);

#endif
