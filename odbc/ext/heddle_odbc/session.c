#include "cancelling.h"
#include "statement.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static atomic_bool process_ends;
static atomic_int disconnecting;

// ---- threads

// Starts a detached thread that blocks all signals, which are for Ruby's threads.
static bool odbc_start_thread(void *(*run)(void *), void *argument)
{
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    int error = pthread_create(&thread, &attributes, run, argument);
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error == 0;
}

// Under the lock. What is released after the start of a job may be the job's own statement.
static void choose_freeing(struct odbc_session *session)
{
    session->freeing = session->released;
    session->released = NULL;
    session->releases = 0;
}

static void free_released(struct odbc_session *session)
{
    struct odbc_statement *statement = session->freeing;
    session->freeing = NULL;
    while (statement) {
        struct odbc_statement *next = statement->next_released;
        odbc_statement_free(statement);
        statement = next;
    }
}

// With an open transaction SQLDisconnect would only fail (25000).
static bool odbc_disconnect(struct odbc_session *session)
{
    if (session->manual) SQLEndTran(SQL_HANDLE_DBC, session->connection, SQL_ROLLBACK);
    return SQL_SUCCEEDED(SQLDisconnect(session->connection));
}

// SQLite ends a transaction in which it interrupts a write. Its driver does not notice: it can no longer roll back, and
// does not disconnect, unless there is a transaction again.
static void begin_again(struct odbc_session *session)
{
    SQLHSTMT handle;
    if (!SQL_SUCCEEDED(SQLAllocHandle(SQL_HANDLE_STMT, session->connection, &handle))) return;
    SQLExecDirect(handle, (SQLCHAR *)"begin", SQL_NTS);
    SQLFreeHandle(SQL_HANDLE_STMT, handle);
}

static void disconnect(struct odbc_session *session)
{
    pthread_mutex_lock(&session->lock);
    choose_freeing(session);
    pthread_mutex_unlock(&session->lock);
    free_released(session);
    if (session->spare) SQLFreeHandle(SQL_HANDLE_STMT, session->spare);
    // SQLite's driver refuses while there are prepared statements, and would keep its file open for ever.
    if (session->connected && !odbc_disconnect(session)) {
        odbc_statements_drop(session, true);
        if (session->manual && session->abilities.loose) begin_again(session);
        odbc_disconnect(session);
    }
    if (session->connection) SQLFreeHandle(SQL_HANDLE_DBC, session->connection);
    if (session->environment) SQLFreeHandle(SQL_HANDLE_ENV, session->environment);
}

// Nothing is released to the session any more.
static void end(struct odbc_session *session)
{
    odbc_statements_drop(session, false); // the handles went with the connection
    pthread_mutex_lock(&session->lock);
    session->ended = true;
    choose_freeing(session);
    pthread_mutex_unlock(&session->lock);
    free_released(session); // what was released since the disconnect began
}

static void odbc_answer(struct odbc_session *session)
{
    ssize_t written;
    do
        written = write(session->wake, "", 1);
    while (written < 0 && errno == EINTR);
}

static void *serve(void *argument)
{
    struct odbc_session *session = argument;
    pthread_mutex_lock(&session->lock);
    while (true) {
        while (!session->busy && !session->ending)
            pthread_cond_wait(&session->changed, &session->lock);
        if (!session->busy) break;
        pthread_mutex_unlock(&session->lock);
        free_released(session);
        session->job.perform(session, &session->job);
        odbc_parameters_shrink(&session->job.parameters);
        pthread_mutex_lock(&session->lock);
        session->busy = false;
        odbc_answer(session);
        pthread_cond_broadcast(&session->changed);
    }
    pthread_mutex_unlock(&session->lock);
    atomic_fetch_add(&disconnecting, 1);
    if (!atomic_load(&process_ends)) disconnect(session);
    atomic_fetch_sub(&disconnecting, 1);
    end(session);
    odbc_session_unreference(session);
    return NULL;
}

// Under the lock. Returns whether the call still runs after a while.
static bool runs_on(struct odbc_session *session)
{
    enum { NANOSECONDS = 250000000, SECOND = 1000000000 };
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += NANOSECONDS;
    if (until.tv_nsec >= SECOND) {
        until.tv_sec++;
        until.tv_nsec -= SECOND;
    }
    while (session->calling && pthread_cond_timedwait(&session->changed, &session->lock, &until) == 0)
        ;
    return session->calling;
}

// Once; but of a session that is to end, nobody is there who would repeat a cancel that came too early.
static void *cancel(void *argument)
{
    struct odbc_session *session = argument;
    bool again = true;
    while (again) {
        odbc_cancel(session);
        pthread_mutex_lock(&session->lock);
        session->cancelling = false;
        pthread_cond_broadcast(&session->changed);
        again = session->cancelling = session->ending && runs_on(session);
        pthread_mutex_unlock(&session->lock);
    }
    odbc_session_unreference(session);
    return NULL;
}

// Under the lock.
static void start_cancel(struct odbc_session *session)
{
    struct odbc_statement *statement = session->job.statement;
    if (!session->calling || session->cancelling || !statement || !statement->handle) return;
    session->cancelling = true;
    session->references++;
    if (odbc_start_thread(cancel, session)) {
        session->cancels++;
    } else {
        session->cancelling = false;
        session->references--;
    }
}

// ---- the session

struct odbc_session *odbc_session_new(bool wide, int wake)
{
    struct odbc_session *session = calloc(1, sizeof *session);
    if (!session) return NULL;
    session->wide = wide;
    session->wake = wake;
    session->owner = getpid();
    session->references = 2; // Ruby's and the thread's
    pthread_mutex_init(&session->lock, NULL);
    pthread_cond_init(&session->changed, NULL);
    if (odbc_start_thread(serve, session)) return session;
    pthread_cond_destroy(&session->changed);
    pthread_mutex_destroy(&session->lock);
    free(session);
    return NULL;
}

bool odbc_session_forked(const struct odbc_session *session)
{
    return session->owner != getpid();
}

void odbc_call_begins(struct odbc_session *session)
{
    pthread_mutex_lock(&session->lock);
    session->calling = true;
    if (session->ending) start_cancel(session); // nobody would do it later
    pthread_mutex_unlock(&session->lock);
}

SQLRETURN odbc_call_ended(struct odbc_session *session, SQLRETURN outcome)
{
    pthread_mutex_lock(&session->lock);
    session->calling = false;
    pthread_cond_broadcast(&session->changed);
    while (session->cancelling) // it uses the statement's handle
        pthread_cond_wait(&session->changed, &session->lock);
    pthread_mutex_unlock(&session->lock);
    return outcome;
}

void odbc_session_start(struct odbc_session *session)
{
    session->job.failed = session->job.miscounted = false;
    odbc_diagnostics_clear(&session->job.diagnostics);
    pthread_mutex_lock(&session->lock);
    session->busy = true;
    choose_freeing(session);
    atomic_store(&session->cancelled, false);
    session->cancels = 0;
    pthread_cond_broadcast(&session->changed);
    pthread_mutex_unlock(&session->lock);
}

bool odbc_session_busy(struct odbc_session *session)
{
    pthread_mutex_lock(&session->lock);
    bool busy = session->busy;
    pthread_mutex_unlock(&session->lock);
    return busy;
}

int odbc_session_cancel(struct odbc_session *session)
{
    atomic_store(&session->cancelled, true);
    pthread_mutex_lock(&session->lock);
    start_cancel(session);
    int cancels = session->cancels;
    pthread_mutex_unlock(&session->lock);
    return cancels;
}

void odbc_session_end(struct odbc_session *session)
{
    atomic_store(&session->cancelled, true);
    pthread_mutex_lock(&session->lock);
    if (!session->ending) start_cancel(session);
    session->ending = true;
    pthread_cond_broadcast(&session->changed);
    pthread_mutex_unlock(&session->lock);
}

static void free_session(struct odbc_session *session)
{
    close(session->wake);
    if (session->source.at) memset(session->source.at, 0, session->source.capacity);
    odbc_buffer_free(&session->source);
    odbc_buffer_free(&session->abilities.text);
    odbc_buffer_free(&session->job.text);
    for (int i = 0; i < ODBC_NAMES; i++)
        odbc_buffer_free(&session->job.names[i]);
    odbc_parameters_free(&session->job.parameters);
    odbc_buffer_free(&session->job.diagnostics.text);
    pthread_cond_destroy(&session->changed);
    pthread_mutex_destroy(&session->lock);
    free(session);
}

void odbc_session_unreference(struct odbc_session *session)
{
    pthread_mutex_lock(&session->lock);
    bool last = --session->references == 0;
    pthread_mutex_unlock(&session->lock);
    if (last) free_session(session);
}

// The threads are the parent's.
static void in_child(void)
{
    atomic_store(&disconnecting, 0);
}

bool odbc_sessions_begin(void)
{
    return pthread_atfork(NULL, NULL, in_child) == 0;
}

void odbc_sessions_rest(void)
{
    // One that has begun gets a moment to end: a driver that is unloaded under it would crash.
    enum { TRIES = 200, NANOSECONDS = 5000000 };
    const struct timespec moment = {.tv_nsec = NANOSECONDS};
    atomic_store(&process_ends, true);
    for (int i = 0; i < TRIES && atomic_load(&disconnecting) > 0; i++)
        nanosleep(&moment, NULL);
}
