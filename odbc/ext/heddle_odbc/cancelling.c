#include "cancelling.h"
#include "connecting.h"
#include "statement.h"

#include <inttypes.h>
#include <sqlext.h>
#include <sqlucode.h>
#include <stdio.h>
#include <string.h>

// Parts of the names of drivers' files, see cancelling.h.
static const char SPLITTING_DRIVER[] = "maodbc", CLOSING_DRIVER[] = "sqlite3odbc";
// Of the second connection: a cancel that takes longer is repeated.
enum { LOGIN_SECONDS = 5 };

static bool has_text(const struct odbc_buffer *texts, const char *text)
{
    return memmem(texts->at, texts->length, text, strlen(text)) != NULL;
}

static SQLRETURN ask_number(SQLHSTMT statement, SQLUBIGINT *number)
{
    SQLRETURN outcome = SQLExecDirect(statement, (SQLCHAR *)"select connection_id()", SQL_NTS);
    if (SQL_SUCCEEDED(outcome)) outcome = SQLFetch(statement);
    if (SQL_SUCCEEDED(outcome)) outcome = SQLGetData(statement, 1, SQL_C_UBIGINT, number, sizeof *number, NULL);
    return outcome;
}

bool odbc_cancelling_begins(struct odbc_session *session, struct odbc_job *job)
{
    SQLHSTMT statement = NULL;
    SQLRETURN outcome;
    if (has_text(&session->abilities.text, CLOSING_DRIVER)) {
        outcome = SQLAllocHandle(SQL_HANDLE_STMT, session->connection, &session->spare);
        return odbc_succeeded(job, outcome, SQL_HANDLE_DBC, session->connection);
    }
    if (!has_text(&session->abilities.text, SPLITTING_DRIVER)) return true;
    outcome = SQLAllocHandle(SQL_HANDLE_STMT, session->connection, &statement);
    if (!odbc_succeeded(job, outcome, SQL_HANDLE_DBC, session->connection)) return false;
    SQLUBIGINT number = 0;
    bool told = odbc_succeeded(job, ask_number(statement, &number), SQL_HANDLE_STMT, statement);
    SQLFreeHandle(SQL_HANDLE_STMT, statement);
    if (!told) return false;
    snprintf(session->kill, sizeof session->kill, "kill query %" PRIu64, (uint64_t)number);
    struct odbc_buffer source = session->source;
    session->source = job->text;
    job->text = source;
    return true;
}

static void kill_over(SQLHDBC connection, struct odbc_session *session)
{
    SQLHSTMT statement;
    SQLSetConnectAttr(connection, SQL_ATTR_LOGIN_TIMEOUT, (SQLPOINTER)LOGIN_SECONDS, 0);
    if (!SQL_SUCCEEDED(odbc_driver_connect(connection, session->wide, &session->source))) return;
    if (SQL_SUCCEEDED(SQLAllocHandle(SQL_HANDLE_STMT, connection, &statement))) {
        SQLExecDirect(statement, (SQLCHAR *)session->kill, SQL_NTS);
        SQLFreeHandle(SQL_HANDLE_STMT, statement);
    }
    SQLDisconnect(connection);
}

void odbc_cancel(struct odbc_session *session)
{
    if (!*session->kill) {
        SQLCancel(session->spare ? session->spare : session->job.statement->handle);
        return;
    }
    SQLHENV environment;
    SQLHDBC connection;
    if (!SQL_SUCCEEDED(SQLAllocHandle(SQL_HANDLE_ENV, SQL_NULL_HANDLE, &environment))) return;
    SQLSetEnvAttr(environment, SQL_ATTR_ODBC_VERSION, (SQLPOINTER)SQL_OV_ODBC3, 0);
    if (SQL_SUCCEEDED(SQLAllocHandle(SQL_HANDLE_DBC, environment, &connection))) {
        kill_over(connection, session);
        SQLFreeHandle(SQL_HANDLE_DBC, connection);
    }
    SQLFreeHandle(SQL_HANDLE_ENV, environment);
}
