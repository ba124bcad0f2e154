#include "cancelling.h"
#include "connecting.h"
#include "statement.h"
#include "text.h"

#include <sqlext.h>
#include <sqlucode.h>
#include <string.h>
#include <strings.h>

static bool connecting_succeeded(struct odbc_session *session, struct odbc_job *job, SQLRETURN outcome)
{
    return odbc_succeeded(job, outcome, SQL_HANDLE_DBC, session->connection);
}

// ---- connecting

static void ask_text(struct odbc_session *session, SQLUSMALLINT what)
{
    enum { UNITS = 256 };
    SQLWCHAR text[UNITS] = {0}; // room for the narrow characters, too
    SQLSMALLINT length = 0;
    struct odbc_buffer *to = &session->abilities.text;
    if (session->wide) {
        if (SQL_SUCCEEDED(SQLGetInfoW(session->connection, what, text, sizeof text, &length))) {
            size_t units = 0;
            while (units < UNITS && text[units]) // drivers disagree on whether the length counts bytes
                units++;
            odbc_append_narrow(to, text, units);
        }
    } else if (SQL_SUCCEEDED(SQLGetInfo(session->connection, what, text, sizeof text, &length))) {
        odbc_buffer_append(to, text, strnlen((char *)text, sizeof text));
    }
    odbc_buffer_append(to, "", 1);
}

static SQLUINTEGER ask_number(struct odbc_session *session, SQLUSMALLINT what)
{
    SQLUINTEGER number = 0;
    return SQL_SUCCEEDED(SQLGetInfo(session->connection, what, &number, sizeof number, NULL)) ? number : 0;
}

static SQLUSMALLINT ask_small(struct odbc_session *session, SQLUSMALLINT what)
{
    SQLUSMALLINT number = 0;
    return SQL_SUCCEEDED(SQLGetInfo(session->connection, what, &number, sizeof number, NULL)) ? number : 0;
}

static bool is_of(const struct odbc_abilities *abilities, const char *family)
{
    return abilities->text.length > strlen(family) && strncasecmp(abilities->text.at, family, strlen(family)) == 0;
}

static void odbc_ask(struct odbc_session *session)
{
    static const SQLUSMALLINT texts[] = {SQL_DBMS_NAME,   SQL_DBMS_VER,
                                         SQL_DRIVER_NAME, SQL_IDENTIFIER_QUOTE_CHAR,
                                         SQL_SERVER_NAME, SQL_SEARCH_PATTERN_ESCAPE};
    struct odbc_abilities *abilities = &session->abilities;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        ask_text(session, texts[i]);
    abilities->loose = is_of(abilities, "sqlite");
    abilities->dates_as_text = is_of(abilities, "postgres");
    // Their rows have all arrived by then; and see odbc_call_begins.
    abilities->cancels_fetch = !is_of(abilities, "mariadb") && !is_of(abilities, "mysql");
    abilities->isolations = ask_number(session, SQL_TXN_ISOLATION_OPTION);
    abilities->isolation = ask_number(session, SQL_DEFAULT_TXN_ISOLATION);
    abilities->data_extensions = ask_number(session, SQL_GETDATA_EXTENSIONS);
    abilities->transactions = ask_small(session, SQL_TXN_CAPABLE);
    abilities->activities = ask_small(session, SQL_MAX_CONCURRENT_ACTIVITIES);
    abilities->at_commit = ask_small(session, SQL_CURSOR_COMMIT_BEHAVIOR);
    abilities->at_rollback = ask_small(session, SQL_CURSOR_ROLLBACK_BEHAVIOR);
    SQLUSMALLINT describes = SQL_FALSE;
    SQLGetFunctions(session->connection, SQL_API_SQLDESCRIBEPARAM, &describes);
    abilities->describes_parameters = describes == SQL_TRUE;
}

SQLRETURN odbc_driver_connect(SQLHDBC connection, bool wide, const struct odbc_buffer *text)
{
    SQLSMALLINT length = (SQLSMALLINT)(wide ? text->length / sizeof(SQLWCHAR) : text->length);
    return wide ? SQLDriverConnectW(connection, NULL, (SQLWCHAR *)text->at, length, NULL, 0, NULL, SQL_DRIVER_NOPROMPT)
                : SQLDriverConnect(connection, NULL, (SQLCHAR *)text->at, length, NULL, 0, NULL, SQL_DRIVER_NOPROMPT);
}

void odbc_perform_connect(struct odbc_session *session, struct odbc_job *job)
{
    job->failed = true;
    if (!SQL_SUCCEEDED(SQLAllocHandle(SQL_HANDLE_ENV, SQL_NULL_HANDLE, &session->environment))) {
        odbc_diagnostics_set(&job->diagnostics, "HY001", "the driver manager has no memory for an environment");
        return;
    }
    SQLSetEnvAttr(session->environment, SQL_ATTR_ODBC_VERSION, (SQLPOINTER)SQL_OV_ODBC3, 0);
    if (!SQL_SUCCEEDED(SQLAllocHandle(SQL_HANDLE_DBC, session->environment, &session->connection))) {
        odbc_diagnostics_collect(&job->diagnostics, SQL_HANDLE_ENV, session->environment);
        return;
    }
    job->failed = false;
    // A help only: the one who waits has a deadline of its own.
    if (job->number > 0)
        SQLSetConnectAttr(session->connection, SQL_ATTR_LOGIN_TIMEOUT, (SQLPOINTER)(SQLULEN)job->number, 0);
    session->connected =
        connecting_succeeded(session, job, odbc_driver_connect(session->connection, session->wide, &job->text));
    if (session->connected) {
        odbc_ask(session);
        odbc_cancelling_begins(session, job);
    }
    // The password need not stay in memory.
    if (job->text.at) memset(job->text.at, 0, job->text.capacity);
}

// ---- transactions

static SQLRETURN set(struct odbc_session *session, SQLINTEGER attribute, SQLULEN value)
{
    return SQLSetConnectAttr(session->connection, attribute, (SQLPOINTER)value, SQL_IS_UINTEGER);
}

void odbc_perform_begin(struct odbc_session *session, struct odbc_job *job)
{
    if (job->number) {
        SQLUINTEGER before = 0;
        if (!SQL_SUCCEEDED(SQLGetConnectAttr(session->connection, SQL_ATTR_TXN_ISOLATION, &before, 0, NULL)) || !before)
            before = session->abilities.isolation;
        if (!connecting_succeeded(session, job, set(session, SQL_ATTR_TXN_ISOLATION, (SQLULEN)job->number))) return;
        session->isolation_before = before;
    }
    session->manual = connecting_succeeded(session, job, set(session, SQL_ATTR_AUTOCOMMIT, SQL_AUTOCOMMIT_OFF));
    if (session->manual || !session->isolation_before) return;
    set(session, SQL_ATTR_TXN_ISOLATION, session->isolation_before);
    session->isolation_before = 0;
}

// What an end of a transaction does to cursors and prepared statements, as the driver said.
static void odbc_forget_statements(struct odbc_session *session, SQLUSMALLINT behaviour)
{
    if (behaviour == SQL_CB_DELETE) session->epoch++;
}

static void end(struct odbc_session *session, struct odbc_job *job, SQLSMALLINT how, SQLUSMALLINT behaviour)
{
    if (!connecting_succeeded(session, job, SQLEndTran(SQL_HANDLE_DBC, session->connection, how))) return;
    odbc_forget_statements(session, behaviour);
    if (!connecting_succeeded(session, job, set(session, SQL_ATTR_AUTOCOMMIT, SQL_AUTOCOMMIT_ON))) return;
    session->manual = false;
    if (!session->isolation_before) return;
    connecting_succeeded(session, job, set(session, SQL_ATTR_TXN_ISOLATION, session->isolation_before));
    session->isolation_before = 0;
}

void odbc_perform_commit(struct odbc_session *session, struct odbc_job *job)
{
    end(session, job, SQL_COMMIT, session->abilities.at_commit);
}

void odbc_perform_rollback(struct odbc_session *session, struct odbc_job *job)
{
    end(session, job, SQL_ROLLBACK, session->abilities.at_rollback);
}

// ---- life

void odbc_perform_check(struct odbc_session *session, struct odbc_job *job)
{
    SQLUINTEGER dead = SQL_CD_FALSE;
    SQLRETURN outcome = SQLGetConnectAttr(session->connection, SQL_ATTR_CONNECTION_DEAD, &dead, 0, NULL);
    job->answer = SQL_SUCCEEDED(outcome) && dead == SQL_CD_TRUE;
}

void odbc_perform_nothing(struct odbc_session *session, struct odbc_job *job)
{
    (void)session;
    (void)job;
}
