#include "statement.h"

#include <sqlext.h>
#include <sqlucode.h>
#include <stdlib.h>
#include <string.h>

struct odbc_statement *odbc_statement_new(struct odbc_session *session)
{
    struct odbc_statement *statement = calloc(1, sizeof *statement);
    if (!statement) return NULL;
    statement->session = session;
    pthread_mutex_lock(&session->lock);
    session->references++;
    pthread_mutex_unlock(&session->lock);
    return statement;
}

static void set_handle(struct odbc_statement *statement, SQLHSTMT handle)
{
    struct odbc_session *session = statement->session;
    if (handle) {
        statement->next = session->statements;
        if (statement->next) statement->next->previous = statement;
        session->statements = statement;
    } else {
        if (statement->previous) {
            statement->previous->next = statement->next;
        } else {
            session->statements = statement->next;
        }
        if (statement->next) statement->next->previous = statement->previous;
        statement->next = statement->previous = NULL;
    }
    pthread_mutex_lock(&session->lock); // another thread may want to cancel
    statement->handle = handle;
    pthread_mutex_unlock(&session->lock);
}

static void drop_handle(struct odbc_statement *statement, bool frees)
{
    SQLHSTMT handle = statement->handle;
    if (!handle) return;
    set_handle(statement, NULL);
    if (frees) SQLFreeHandle(SQL_HANDLE_STMT, handle);
}

void odbc_statements_drop(struct odbc_session *session, bool frees)
{
    while (session->statements)
        drop_handle(session->statements, frees);
}

void odbc_statement_free(struct odbc_statement *statement)
{
    drop_handle(statement, true);
    odbc_forget_columns(statement);
    free(statement->parameter_types);
    odbc_buffer_free(&statement->rows);
    odbc_buffer_free(&statement->sql);
    struct odbc_session *session = statement->session;
    free(statement);
    odbc_session_unreference(session);
}

void odbc_statement_release(struct odbc_statement *statement)
{
    struct odbc_session *session = statement->session;
    if (odbc_session_forked(session)) return; // its memory goes with the process
    pthread_mutex_lock(&session->lock);
    bool ended = session->ended;
    if (!ended) {
        statement->next_released = session->released;
        session->released = statement;
        session->releases++;
    }
    pthread_mutex_unlock(&session->lock);
    if (ended) odbc_statement_free(statement);
}

bool odbc_succeeded(struct odbc_job *job, SQLRETURN outcome, SQLSMALLINT type, SQLHANDLE handle)
{
    if (SQL_SUCCEEDED(outcome)) return true;
    job->failed = true;
    if (outcome == SQL_INVALID_HANDLE)
        odbc_diagnostics_set(&job->diagnostics, "HY000", "the driver says that this handle is invalid");
    else
        odbc_diagnostics_collect(&job->diagnostics, type, handle);
    return false;
}

bool odbc_cancelled(struct odbc_session *session, struct odbc_job *job)
{
    if (!atomic_load(&session->cancelled)) return false;
    job->failed = true;
    odbc_diagnostics_set(&job->diagnostics, "HY008", "cancelled");
    return true;
}

static bool statement_succeeded(struct odbc_job *job, SQLRETURN outcome)
{
    return odbc_succeeded(job, outcome, SQL_HANDLE_STMT, job->statement->handle);
}

static bool without_memory(struct odbc_job *job)
{
    job->failed = true;
    odbc_diagnostics_set(&job->diagnostics, "HY001", "no memory for this statement");
    return false;
}

static bool odbc_statement_allocate(struct odbc_session *session, struct odbc_job *job)
{
    struct odbc_statement *statement = job->statement;
    if (statement->handle) return true;
    SQLHSTMT handle = NULL;
    SQLRETURN outcome = SQLAllocHandle(SQL_HANDLE_STMT, session->connection, &handle);
    if (!odbc_succeeded(job, outcome, SQL_HANDLE_DBC, session->connection)) return false;
    set_handle(statement, handle);
    return true;
}

static bool describe_parameters(struct odbc_session *session, struct odbc_job *job)
{
    struct odbc_statement *statement = job->statement;
    if (!statement_succeeded(job, SQLNumParams(statement->handle, &statement->parameter_count))) return false;
    if (statement->parameter_count <= 0) return true;
    size_t count = (size_t)statement->parameter_count;
    statement->parameter_types = calloc(count, sizeof *statement->parameter_types);
    if (!statement->parameter_types) return without_memory(job);
    for (size_t i = 0; i < count; i++) {
        struct odbc_parameter_type *type = &statement->parameter_types[i];
        SQLRETURN outcome = SQL_ERROR;
        // A driver that cannot tell for this statement (a parameter in an expression) may still run it.
        if (session->abilities.describes_parameters)
            outcome = SQLDescribeParam(statement->handle, (SQLUSMALLINT)(i + 1), &type->type, &type->size,
                                       &type->digits, &type->nullable);
        if (!SQL_SUCCEEDED(outcome)) *type = (struct odbc_parameter_type){.type = SQL_UNKNOWN_TYPE};
    }
    return true;
}

// Prepares the statement's text, anew if an end of a transaction has made the driver forget it.
static bool prepare_text(struct odbc_session *session, struct odbc_job *job)
{
    struct odbc_statement *statement = job->statement;
    struct odbc_buffer *sql = &statement->sql;
    SQLINTEGER length = (SQLINTEGER)(session->wide ? sql->length / sizeof(SQLWCHAR) : sql->length);
    odbc_call_begins(session);
    SQLRETURN outcome =
        odbc_call_ended(session, session->wide ? SQLPrepareW(statement->handle, (SQLWCHAR *)sql->at, length)
                                               : SQLPrepare(statement->handle, (SQLCHAR *)sql->at, length));
    if (!statement_succeeded(job, outcome)) return false;
    statement->epoch = session->epoch; // only now: what could not be prepared is prepared by the next call
    return true;
}

static bool odbc_prepare(struct odbc_session *session, struct odbc_job *job)
{
    if (!odbc_statement_allocate(session, job)) return false;
    // The text goes over, and the statement's empty buffer comes back.
    struct odbc_buffer text = job->statement->sql;
    job->statement->sql = job->text;
    job->text = text;
    return prepare_text(session, job) && describe_parameters(session, job);
}

void odbc_perform_prepare(struct odbc_session *session, struct odbc_job *job)
{
    // Some drivers find an error only when they describe the columns.
    if (odbc_prepare(session, job)) odbc_describe_columns(session, job);
}

static void forget_rows(struct odbc_statement *statement)
{
    statement->rows.length = statement->row_count = statement->taken = statement->position = 0;
}

// What follows an execution: the columns and first rows of one result.
static bool begin_result(struct odbc_session *session, struct odbc_job *job, SQLRETURN outcome)
{
    struct odbc_statement *statement = job->statement;
    forget_rows(statement);
    statement->affected = 0;
    statement->warnings = 0;
    if (outcome == SQL_SUCCESS_WITH_INFO) {
        odbc_diagnostics_collect(&job->diagnostics, SQL_HANDLE_STMT, statement->handle);
        statement->warnings = job->diagnostics.records;
        odbc_diagnostics_clear(&job->diagnostics);
    }
    if (!odbc_describe_columns(session, job)) return false;
    statement->open = statement->column_count > 0;
    if (statement->open) return odbc_fetch_rows(session, job);
    SQLLEN affected = 0;
    if (SQL_SUCCEEDED(SQLRowCount(statement->handle, &affected)) && affected > 0) statement->affected = affected;
    return true;
}

static void close_cursor(struct odbc_statement *statement)
{
    if (!statement->handle) return;
    SQLFreeStmt(statement->handle, SQL_CLOSE);
    statement->open = statement->more = false;
}

// Goes on to the next result once the rows of this one have ended. A failure belongs to the statement that runs on.
static bool look_further(struct odbc_job *job)
{
    struct odbc_statement *statement = job->statement;
    if (statement->open || (statement->alone && statement->column_count == 0)) return true;
    odbc_call_begins(statement->session);
    SQLRETURN outcome = odbc_call_ended(statement->session, SQLMoreResults(statement->handle));
    statement->more = SQL_SUCCEEDED(outcome);
    if (outcome == SQL_NO_DATA || SQL_SUCCEEDED(outcome)) return true;
    return statement_succeeded(job, outcome);
}

static void odbc_finish(struct odbc_job *job, bool good)
{
    struct odbc_statement *statement = job->statement;
    if (good) good = look_further(job);
    if (!good || (!statement->open && !statement->more)) close_cursor(statement);
}

void odbc_perform_run(struct odbc_session *session, struct odbc_job *job)
{
    struct odbc_statement *statement = job->statement;
    if (!statement->handle && !odbc_prepare(session, job)) return;
    if (statement->epoch != session->epoch && !prepare_text(session, job)) return;
    if ((size_t)statement->parameter_count != job->parameters.count) {
        job->miscounted = true;
        return;
    }
    SQLRETURN outcome = odbc_parameters_bind(&job->parameters, statement->handle, statement->parameter_types);
    if (statement_succeeded(job, outcome) && !odbc_cancelled(session, job)) {
        odbc_call_begins(session);
        outcome = odbc_call_ended(session, SQLExecute(statement->handle));
        // An UPDATE that changes no row says "no data".
        bool good = outcome == SQL_NO_DATA || statement_succeeded(job, outcome);
        if (!good) statement->epoch = session->epoch - 1; // the server may have forgotten the statement
        odbc_finish(job, good && begin_result(session, job, outcome));
    }
    // The values are the job's own.
    if (job->parameters.count > 0) SQLFreeStmt(statement->handle, SQL_RESET_PARAMS);
}

void odbc_perform_fetch(struct odbc_session *session, struct odbc_job *job)
{
    odbc_finish(job, odbc_fetch_rows(session, job));
}

void odbc_perform_next(struct odbc_session *session, struct odbc_job *job)
{
    job->statement->more = false;
    odbc_finish(job, begin_result(session, job, SQL_SUCCESS));
}

void odbc_perform_tables(struct odbc_session *session, struct odbc_job *job)
{
    if (!odbc_statement_allocate(session, job)) return;
    SQLRETURN outcome;
    SQLHSTMT handle = job->statement->handle;
    struct odbc_buffer *names = job->names;
    if (session->wide) {
        SQLWCHAR *at[ODBC_NAMES];
        SQLSMALLINT length[ODBC_NAMES];
        for (int i = 0; i < ODBC_NAMES; i++) {
            at[i] = job->named[i] ? (SQLWCHAR *)names[i].at : NULL;
            length[i] = (SQLSMALLINT)(job->named[i] ? names[i].length / sizeof(SQLWCHAR) : 0);
        }
        outcome = SQLTablesW(handle, at[0], length[0], at[1], length[1], at[2], length[2], at[3], length[3]);
    } else {
        SQLCHAR *at[ODBC_NAMES];
        SQLSMALLINT length[ODBC_NAMES];
        for (int i = 0; i < ODBC_NAMES; i++) {
            at[i] = job->named[i] ? (SQLCHAR *)names[i].at : NULL;
            length[i] = (SQLSMALLINT)(job->named[i] ? names[i].length : 0);
        }
        outcome = SQLTables(handle, at[0], length[0], at[1], length[1], at[2], length[2], at[3], length[3]);
    }
    odbc_finish(job, statement_succeeded(job, outcome) && begin_result(session, job, SQL_SUCCESS));
}

void odbc_perform_close(struct odbc_session *session, struct odbc_job *job)
{
    (void)session;
    close_cursor(job->statement);
    forget_rows(job->statement);
}
