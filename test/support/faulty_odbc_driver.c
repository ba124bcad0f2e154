// An ODBC driver without a database, which does what drivers may do and those at hand do not. What it does is in the
// text of the statement:
//
//   rows COUNT BAD      an integer a row, from 1; the row BAD fails
//   pieces              three long texts: of unknown length, whose pieces end at different places; one whose length
//                       is unknown though it is whole
//   unclear             bytes of unknown length though they are whole
//   endless             a text that never ends
//   wait STATE          runs until it is cancelled, and fails with that SQLSTATE; with CLOSES in the connection string,
//                       as SQLite's driver: a cancel ends what runs on the connection, and breaks its own statement
//   hold                the same, with a lock that every connect takes, or with ASKS in its string asks for
//   moody               cannot be prepared the second time
//   anything else       changes one row
#include <sql.h>
#include <pthread.h>
#include <sqlext.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum kind { CHANGE, ROWS, PIECES, UNCLEAR, ENDLESS, WAIT };

struct statement {
    enum kind kind;
    int count, bad, row, piece;
    bool holds;
    SQLULEN array;
    SQLULEN *fetched;
    SQLUSMALLINT *states;
    SQLULEN row_size;
    char *value;
    SQLLEN *length;
    const char *state;
    char state_at_cancel[6];
    atomic_bool cancelled;
};

static int moods;
static unsigned delay; // of SQLDisconnect, in microseconds
static bool closes;    // see above
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(struct statement *) waiting;

static SQLRETURN refuse(struct statement *statement, const char *state)
{
    statement->state = state;
    return SQL_ERROR;
}

SQLRETURN SQLAllocHandle(SQLSMALLINT type, SQLHANDLE from, SQLHANDLE *handle)
{
    (void)type;
    (void)from;
    struct statement *statement = calloc(1, sizeof *statement);
    statement->array = 1;
    *handle = statement;
    return SQL_SUCCESS;
}

SQLRETURN SQLFreeHandle(SQLSMALLINT type, SQLHANDLE handle)
{
    (void)type;
    free(handle);
    return SQL_SUCCESS;
}

SQLRETURN SQLSetEnvAttr(SQLHENV handle, SQLINTEGER attribute, SQLPOINTER value, SQLINTEGER length)
{
    (void)handle, (void)attribute, (void)value, (void)length;
    return SQL_SUCCESS;
}

SQLRETURN SQLDriverConnect(SQLHDBC handle, SQLHWND window, SQLCHAR *in, SQLSMALLINT length, SQLCHAR *out,
                           SQLSMALLINT room, SQLSMALLINT *written, SQLUSMALLINT prompt)
{
    (void)handle, (void)window, (void)in, (void)length, (void)out, (void)room, (void)written, (void)prompt;
    if (!strstr((const char *)in, "ASKS=1"))
        pthread_mutex_lock(&lock);
    else if (pthread_mutex_trylock(&lock))
        return refuse(handle, "08001");
    pthread_mutex_unlock(&lock);
    const char *found = strstr((const char *)in, "DELAY=");
    delay = found ? (unsigned)atoi(found + 6) : 0;
    closes = strstr((const char *)in, "CLOSES=1") != NULL;
    return SQL_SUCCESS;
}

SQLRETURN SQLDisconnect(SQLHDBC handle)
{
    (void)handle;
    usleep(delay);
    return SQL_SUCCESS;
}

SQLRETURN SQLGetInfo(SQLHDBC handle, SQLUSMALLINT what, SQLPOINTER value, SQLSMALLINT room, SQLSMALLINT *length)
{
    (void)handle;
    switch (what) {
    case SQL_DRIVER_ODBC_VER:
        if (length) *length = 5;
        snprintf(value, (size_t)room, "03.00");
        return SQL_SUCCESS;
    case SQL_GETDATA_EXTENSIONS:
        *(SQLUINTEGER *)value = SQL_GD_ANY_COLUMN | SQL_GD_ANY_ORDER | SQL_GD_BLOCK | SQL_GD_BOUND;
        return SQL_SUCCESS;
    case SQL_CURSOR_COMMIT_BEHAVIOR:
        *(SQLUSMALLINT *)value = SQL_CB_DELETE;
        return SQL_SUCCESS;
    case SQL_TXN_CAPABLE:
        *(SQLUSMALLINT *)value = SQL_TC_ALL;
        return SQL_SUCCESS;
    case SQL_DRIVER_NAME:
        snprintf(value, (size_t)room, "%s", closes ? "sqlite3odbc.so" : "faulty.so");
        if (length) *length = (SQLSMALLINT)strlen(value);
        return SQL_SUCCESS;
    case SQL_DBMS_NAME:
        snprintf(value, (size_t)room, "Faulty");
        if (length) *length = 6;
        return SQL_SUCCESS;
    }
    return SQL_ERROR;
}

SQLRETURN SQLSetConnectAttr(SQLHDBC handle, SQLINTEGER attribute, SQLPOINTER value, SQLINTEGER length)
{
    (void)handle, (void)attribute, (void)value, (void)length;
    return SQL_SUCCESS;
}

SQLRETURN SQLEndTran(SQLSMALLINT type, SQLHANDLE handle, SQLSMALLINT how)
{
    (void)type, (void)handle, (void)how;
    return SQL_SUCCESS;
}

// ---- statements

SQLRETURN SQLGetStmtAttr(SQLHSTMT handle, SQLINTEGER attribute, SQLPOINTER value, SQLINTEGER room, SQLINTEGER *length)
{
    (void)attribute, (void)room, (void)length;
    *(SQLPOINTER *)value = handle; // the driver manager asks for descriptors
    return SQL_SUCCESS;
}

SQLRETURN SQLSetStmtAttr(SQLHSTMT handle, SQLINTEGER attribute, SQLPOINTER value, SQLINTEGER length)
{
    struct statement *statement = handle;
    (void)length;
    if (attribute == SQL_ATTR_ROW_ARRAY_SIZE) statement->array = (SQLULEN)value;
    if (attribute == SQL_ATTR_ROW_BIND_TYPE) statement->row_size = (SQLULEN)value;
    if (attribute == SQL_ATTR_ROWS_FETCHED_PTR) statement->fetched = value;
    if (attribute == SQL_ATTR_ROW_STATUS_PTR) statement->states = value;
    return SQL_SUCCESS;
}

SQLRETURN SQLPrepare(SQLHSTMT handle, SQLCHAR *text, SQLINTEGER length)
{
    struct statement *statement = handle;
    char sql[100];
    snprintf(sql, sizeof sql, "%.*s", length < 0 ? 99 : (int)length, (const char *)text);
    statement->kind = strcmp(sql, "pieces") == 0    ? PIECES
                      : strcmp(sql, "unclear") == 0 ? UNCLEAR
                      : strcmp(sql, "endless") == 0 ? ENDLESS
                      : sscanf(sql, "rows %d %d", &statement->count, &statement->bad) == 2 ? ROWS
                                                                                           : CHANGE;
    if (sscanf(sql, "wait %5s", statement->state_at_cancel) == 1) statement->kind = WAIT;
    statement->holds = strcmp(sql, "hold") == 0;
    if (statement->holds) statement->kind = WAIT;
    if (statement->kind == PIECES) statement->count = 3;
    if (statement->kind == UNCLEAR || statement->kind == ENDLESS) statement->count = 1;
    if (strcmp(sql, "moody") == 0 && ++moods == 2) return refuse(statement, "40001");
    return SQL_SUCCESS;
}

SQLRETURN SQLNumParams(SQLHSTMT handle, SQLSMALLINT *count)
{
    (void)handle;
    *count = 0;
    return SQL_SUCCESS;
}

SQLRETURN SQLExecute(SQLHSTMT handle)
{
    struct statement *statement = handle;
    statement->row = statement->piece = 0;
    if (statement->kind != WAIT) return SQL_SUCCESS;
    if (statement->holds) pthread_mutex_lock(&lock);
    atomic_store(&waiting, statement);
    while (!atomic_load(&statement->cancelled))
        usleep(1000);
    atomic_store(&waiting, NULL);
    if (statement->holds) pthread_mutex_unlock(&lock);
    return refuse(statement, statement->state_at_cancel);
}

SQLRETURN SQLNumResultCols(SQLHSTMT handle, SQLSMALLINT *count)
{
    enum kind kind = ((struct statement *)handle)->kind;
    *count = kind != CHANGE && kind != WAIT;
    return SQL_SUCCESS;
}

SQLRETURN SQLDescribeCol(SQLHSTMT handle, SQLUSMALLINT number, SQLCHAR *name, SQLSMALLINT room, SQLSMALLINT *length,
                         SQLSMALLINT *type, SQLULEN *size, SQLSMALLINT *digits, SQLSMALLINT *nullable)
{
    enum kind kind = ((struct statement *)handle)->kind;
    (void)number;
    *length = 2000; // of a name that has no room
    memset(name, 'n', (size_t)room - 1);
    name[room - 1] = 0;
    *type = kind == ROWS ? SQL_INTEGER : kind == UNCLEAR ? SQL_LONGVARBINARY : SQL_LONGVARCHAR;
    *size = kind == ROWS ? 10 : 0;
    *digits = 0;
    *nullable = SQL_NULLABLE;
    return SQL_SUCCESS;
}

SQLRETURN SQLColAttribute(SQLHSTMT handle, SQLUSMALLINT number, SQLUSMALLINT field, SQLPOINTER text, SQLSMALLINT room,
                          SQLSMALLINT *length, SQLLEN *value)
{
    (void)handle, (void)number, (void)field, (void)text, (void)room, (void)length, (void)value;
    return SQL_ERROR;
}

SQLRETURN SQLBindCol(SQLHSTMT handle, SQLUSMALLINT number, SQLSMALLINT type, SQLPOINTER value, SQLLEN room,
                     SQLLEN *length)
{
    struct statement *statement = handle;
    (void)number, (void)type, (void)room;
    statement->value = value;
    statement->length = length;
    return SQL_SUCCESS;
}

SQLRETURN SQLFreeStmt(SQLHSTMT handle, SQLUSMALLINT what)
{
    (void)handle, (void)what;
    return SQL_SUCCESS;
}

SQLRETURN SQLFetch(SQLHSTMT handle)
{
    struct statement *statement = handle;
    SQLULEN row = 0;
    bool bad = false;
    if (statement->row == statement->count) return SQL_NO_DATA;
    for (; row < statement->array && statement->row < statement->count; row++) {
        statement->row++;
        statement->piece = 0;
        if (statement->kind != ROWS) continue;
        bool fails = statement->row == statement->bad;
        bad |= fails;
        if (statement->states) statement->states[row] = fails ? SQL_ROW_ERROR : SQL_ROW_SUCCESS;
        if (fails) continue;
        *(SQLBIGINT *)(statement->value + row * statement->row_size) = statement->row;
        *(SQLLEN *)((char *)statement->length + row * statement->row_size) = sizeof(SQLBIGINT);
    }
    if (statement->fetched) *statement->fetched = row;
    if (bad) statement->state = "22003";
    return bad && row == 1 ? SQL_ERROR : bad ? SQL_SUCCESS_WITH_INFO : SQL_SUCCESS;
}

// Pieces of which each is some bytes shorter than it might be.
static SQLRETURN give(struct statement *statement, char *to, SQLLEN room, SQLLEN *length, SQLLEN pieces)
{
    SQLLEN free_bytes = statement->row - 1;
    *length = SQL_NO_TOTAL;
    memset(to, 'a', (size_t)(room - 1 - free_bytes));
    to[room - 1 - free_bytes] = 0;
    if (++statement->piece <= pieces) return SQL_SUCCESS_WITH_INFO;
    strcpy(to, "end");
    *length = 3;
    return SQL_SUCCESS;
}

SQLRETURN SQLGetData(SQLHSTMT handle, SQLUSMALLINT number, SQLSMALLINT type, SQLPOINTER to, SQLLEN room, SQLLEN *length)
{
    struct statement *statement = handle;
    (void)number, (void)type;
    if (statement->kind == ENDLESS) {
        usleep(1000);
        return give(statement, to, room, length, 1 << 20);
    }
    if (statement->kind == UNCLEAR || statement->row == 3) {
        if (statement->piece++) return SQL_NO_DATA;
        strcpy(to, "whole");
        *length = SQL_NO_TOTAL;
        return SQL_SUCCESS;
    }
    return give(statement, to, room, length, 2);
}

SQLRETURN SQLRowCount(SQLHSTMT handle, SQLLEN *count)
{
    (void)handle;
    *count = 1;
    return SQL_SUCCESS;
}

SQLRETURN SQLMoreResults(SQLHSTMT handle)
{
    (void)handle;
    return SQL_NO_DATA;
}

SQLRETURN SQLCancel(SQLHSTMT handle)
{
    struct statement *statement = handle, *ended = closes ? atomic_load(&waiting) : statement;
    if (!ended) return SQL_SUCCESS;
    if (closes && ended == statement) strcpy(ended->state_at_cancel, "HY010");
    atomic_store(&ended->cancelled, true);
    return SQL_SUCCESS;
}

SQLRETURN SQLGetDiagRec(SQLSMALLINT type, SQLHANDLE handle, SQLSMALLINT number, SQLCHAR *state, SQLINTEGER *code,
                        SQLCHAR *message, SQLSMALLINT room, SQLSMALLINT *length)
{
    const char *own = type == SQL_HANDLE_STMT ? ((struct statement *)handle)->state : NULL;
    if (number > 1 || !own) return SQL_NO_DATA;
    strcpy((char *)state, own);
    if (code) *code = 7;
    snprintf((char *)message, (size_t)room, "refused");
    if (length) *length = 7;
    return SQL_SUCCESS;
}

SQLRETURN SQLGetDiagField(SQLSMALLINT type, SQLHANDLE handle, SQLSMALLINT number, SQLSMALLINT field, SQLPOINTER value,
                          SQLSMALLINT room, SQLSMALLINT *length)
{
    (void)type, (void)handle, (void)number, (void)field, (void)value, (void)room, (void)length;
    return SQL_NO_DATA; // the driver manager asks only where this function exists
}
