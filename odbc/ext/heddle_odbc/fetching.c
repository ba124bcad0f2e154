// Columns and rows: block fetch of columns whose length is known, long values in pieces.
#include "statement.h"

#include <sqlext.h>
#include <sqlucode.h>
#include <stdlib.h>
#include <string.h>

enum {
    NAME_UNITS = 256,
    LONGEST_BOUND = 1024, // characters or bytes of a column that is bound
    BLOCK_BYTES = 256 << 10,
    BLOCK_ROWS = 1000,
    JOB_BYTES = 1 << 20, // a job ends when its rows have this many
    PIECE = 64 << 10,
    LONGEST_CHARACTER = 4 // bytes
};

// Types of Microsoft's servers (sqlncli.h) that the standard does not have.
enum { SQL_SS_VARIANT_TYPE = -150, SQL_SS_UDT_TYPE = -151, SQL_SS_XML_TYPE = -152 };

void odbc_forget_columns(struct odbc_statement *statement)
{
    for (SQLSMALLINT i = 0; i < statement->column_count; i++) {
        odbc_buffer_free(&statement->columns[i].name);
        odbc_buffer_free(&statement->columns[i].table);
    }
    free(statement->columns);
    free(statement->block);
    statement->columns = NULL;
    statement->block = NULL;
    statement->column_count = 0;
}

static bool failed(struct odbc_job *job, const char *state, const char *message)
{
    job->failed = true;
    odbc_diagnostics_set(&job->diagnostics, state, message);
    return false;
}

static bool fetching_succeeded(struct odbc_job *job, SQLRETURN outcome)
{
    return odbc_succeeded(job, outcome, SQL_HANDLE_STMT, job->statement->handle);
}

// ---- columns

static void choose_kind(struct odbc_column *column, bool is_unsigned, bool loose)
{
    switch (column->type) {
    case SQL_BIT: column->kind = ODBC_BOOLEAN; break;
    case SQL_TINYINT:
    case SQL_SMALLINT:
    case SQL_INTEGER:
    case SQL_BIGINT: column->kind = loose ? ODBC_LOOSE : is_unsigned ? ODBC_UNSIGNED : ODBC_INTEGER; break;
    case SQL_REAL:
    case SQL_FLOAT:
    case SQL_DOUBLE: column->kind = ODBC_FLOAT; break;
    case SQL_DECIMAL:
    case SQL_NUMERIC: column->kind = ODBC_DECIMAL; break;
    case SQL_TYPE_DATE: column->kind = ODBC_DATE; break;
    case SQL_TYPE_TIMESTAMP: column->kind = ODBC_TIMESTAMP; break;
    case SQL_TYPE_TIME: column->kind = ODBC_TIME; break;
    case SQL_GUID: column->kind = ODBC_UUID; break;
    case SQL_BINARY:
    case SQL_VARBINARY:
    case SQL_LONGVARBINARY:
    case SQL_SS_UDT_TYPE: column->kind = ODBC_BYTES; break;
    default: column->kind = ODBC_TEXT;
    }
}

static bool is_long(SQLSMALLINT type)
{
    return type == SQL_LONGVARCHAR || type == SQL_WLONGVARCHAR || type == SQL_LONGVARBINARY ||
           type == SQL_SS_VARIANT_TYPE || type == SQL_SS_UDT_TYPE || type == SQL_SS_XML_TYPE;
}

// Whether a value comes as text although its column has another type: where that does not bind its values, and where
// the driver makes another date of one that it cannot read.
static bool comes_as_text(const struct odbc_abilities *abilities, enum odbc_kind kind)
{
    switch (kind) {
    case ODBC_FLOAT:
    case ODBC_BOOLEAN:
    case ODBC_TIMESTAMP: return abilities->loose;
    case ODBC_DATE: return abilities->loose || abilities->dates_as_text;
    default: return false;
    }
}

// Chooses the C type, and how many bytes a value takes; 0 where nobody can tell.
static void choose_form(struct odbc_column *column, const struct odbc_session *session, bool reread)
{
    enum { DIGITS = 128, TIME_LENGTH = 40, GUID_LENGTH = 37 };
    bool wide = session->wide && !session->reads_utf8;
    bool bounded = reread && !is_long(column->type) && column->size > 0 && column->size <= LONGEST_BOUND;
    if (comes_as_text(&session->abilities, column->kind)) {
        column->c_type = SQL_C_CHAR;
        column->room = reread ? TIME_LENGTH : 0;
        return;
    }
    switch (column->kind) {
    case ODBC_INTEGER:
        column->c_type = SQL_C_SBIGINT;
        column->room = sizeof(SQLBIGINT);
        break;
    case ODBC_UNSIGNED:
        column->c_type = SQL_C_UBIGINT;
        column->room = sizeof(SQLUBIGINT);
        break;
    case ODBC_FLOAT:
        column->c_type = SQL_C_DOUBLE;
        column->room = sizeof(SQLDOUBLE);
        break;
    case ODBC_BOOLEAN:
        column->c_type = SQL_C_BIT;
        column->room = 1;
        break;
    case ODBC_DATE:
        column->c_type = SQL_C_TYPE_DATE;
        column->room = sizeof(SQL_DATE_STRUCT);
        break;
    case ODBC_TIMESTAMP:
        column->c_type = SQL_C_TYPE_TIMESTAMP;
        column->room = sizeof(SQL_TIMESTAMP_STRUCT);
        break;
    case ODBC_DECIMAL: // a sign, a point, a NUL, and a zero in front of the point
        column->c_type = SQL_C_CHAR;
        column->room = !reread ? 0 : column->size > 0 && column->size < DIGITS ? column->size + 4 : DIGITS;
        break;
    case ODBC_TIME:
    case ODBC_LOOSE:
        column->c_type = SQL_C_CHAR;
        column->room = reread ? TIME_LENGTH : 0;
        break;
    case ODBC_UUID:
        column->c_type = SQL_C_CHAR;
        column->room = reread ? GUID_LENGTH : 0;
        break;
    case ODBC_BYTES:
        column->c_type = SQL_C_BINARY;
        column->room = bounded ? column->size : 0;
        break;
    case ODBC_TEXT: // up to four bytes a character in a narrow encoding, up to two units in UTF-16
        column->c_type = session->reads_utf8 ? SQL_C_BINARY : wide ? SQL_C_WCHAR : SQL_C_CHAR;
        column->room = bounded ? column->size * 4 + (wide ? sizeof(SQLWCHAR) : 1) : 0;
        break;
    }
}

// The bytes of a name. Drivers disagree on whether its length counts bytes or characters.
static size_t odbc_bytes_of(const SQLWCHAR *name, SQLSMALLINT length, bool wide)
{
    if (length <= 0) return 0;
    size_t most = NAME_UNITS * sizeof(SQLWCHAR); // of a longer name the driver tells the whole length
    if (!wide) return strnlen((const char *)name, (size_t)length < most ? (size_t)length : most);
    size_t units = 0;
    while (units < (size_t)length && units < NAME_UNITS && name[units])
        units++;
    return units * sizeof(SQLWCHAR);
}

static bool describe_column(struct odbc_session *session, struct odbc_job *job, SQLUSMALLINT number)
{
    struct odbc_statement *statement = job->statement;
    struct odbc_column *column = &statement->columns[number - 1];
    SQLWCHAR name[NAME_UNITS] = {0};
    SQLSMALLINT length = 0;
    SQLRETURN outcome = session->wide
                            ? SQLDescribeColW(statement->handle, number, name, NAME_UNITS, &length, &column->type,
                                              &column->size, &column->digits, &column->nullable)
                            : SQLDescribeCol(statement->handle, number, (SQLCHAR *)name, sizeof name, &length,
                                             &column->type, &column->size, &column->digits, &column->nullable);
    if (!fetching_succeeded(job, outcome)) return false;
    if (!odbc_buffer_append(&column->name, name, odbc_bytes_of(name, length, session->wide)))
        return failed(job, "HY001", "no memory for a column");

    // A table's name is a help to people only: not every driver has it.
    memset(name, 0, sizeof name);
    length = 0;
    outcome = session->wide
                  ? SQLColAttributeW(statement->handle, number, SQL_DESC_TABLE_NAME, name, sizeof name, &length, NULL)
                  : SQLColAttribute(statement->handle, number, SQL_DESC_TABLE_NAME, name, sizeof name, &length, NULL);
    if (SQL_SUCCEEDED(outcome)) odbc_buffer_append(&column->table, name, odbc_bytes_of(name, length, session->wide));

    choose_kind(column, false, session->abilities.loose);
    if (column->kind == ODBC_INTEGER) {
        SQLLEN is_unsigned = SQL_FALSE;
        outcome = SQLColAttribute(statement->handle, number, SQL_DESC_UNSIGNED, NULL, 0, NULL, &is_unsigned);
        if (SQL_SUCCEEDED(outcome) && is_unsigned == SQL_TRUE) choose_kind(column, true, false);
    }
    return true;
}

// Behind the rows of the block: what became of each.
static SQLUSMALLINT *row_states(const struct odbc_statement *statement)
{
    return (SQLUSMALLINT *)(statement->block + statement->block_rows * statement->row_size);
}

// Before the block is freed.
static void unbind_columns(struct odbc_statement *statement)
{
    if (!statement->block) return;
    SQLFreeStmt(statement->handle, SQL_UNBIND);
    SQLSetStmtAttr(statement->handle, SQL_ATTR_ROW_STATUS_PTR, NULL, 0);
}

// Binds the columns of a known length to a block of rows. Columns that are read in pieces need one row at a time, and
// with most drivers that the bound ones stand before them.
static bool bind_columns(struct odbc_session *session, struct odbc_job *job)
{
    struct odbc_statement *statement = job->statement;
    SQLUINTEGER extensions = session->abilities.data_extensions;
    bool reread = (extensions & SQL_GD_BOUND) != 0, pieces = false;
    size_t offset = 0;
    for (SQLSMALLINT i = 0; i < statement->column_count; i++) {
        struct odbc_column *column = &statement->columns[i];
        choose_form(column, session, reread);
        if (pieces && !(extensions & SQL_GD_ANY_COLUMN)) column->room = 0;
        if (column->room == 0) {
            pieces = true;
            continue;
        }
        column->offset = offset;
        offset += sizeof(SQLLEN) + (column->room + 7) / 8 * 8;
    }
    statement->row_size = offset;
    statement->block_rows = 1;
    if (!pieces && offset > 0 && (extensions & SQL_GD_BLOCK)) {
        size_t rows = BLOCK_BYTES / offset;
        statement->block_rows = rows < 1 ? 1 : rows > BLOCK_ROWS ? BLOCK_ROWS : rows;
    }
    if (offset > 0 && !(statement->block = calloc(statement->block_rows, offset + sizeof(SQLUSMALLINT))))
        return failed(job, "HY001", "no memory for rows");
    SQLHSTMT handle = statement->handle;
    SQLSetStmtAttr(handle, SQL_ATTR_ROWS_FETCHED_PTR, &statement->fetched, 0);
    if (statement->block_rows > 1) {
        // One row a call is the default, and all that some drivers have.
        bool blocks =
            SQL_SUCCEEDED(SQLSetStmtAttr(handle, SQL_ATTR_ROW_BIND_TYPE, (SQLPOINTER)statement->row_size, 0)) &&
            SQL_SUCCEEDED(SQLSetStmtAttr(handle, SQL_ATTR_ROW_ARRAY_SIZE, (SQLPOINTER)statement->block_rows, 0));
        if (!blocks) statement->block_rows = 1;
    }
    if (statement->block_rows == 1)
        SQLSetStmtAttr(handle, SQL_ATTR_ROW_ARRAY_SIZE, (SQLPOINTER)1, 0);
    else
        SQLSetStmtAttr(handle, SQL_ATTR_ROW_STATUS_PTR, row_states(statement), 0);
    for (SQLSMALLINT i = 0; i < statement->column_count; i++) {
        struct odbc_column *column = &statement->columns[i];
        if (column->room == 0) continue;
        char *at = statement->block + column->offset;
        SQLRETURN outcome = SQLBindCol(handle, (SQLUSMALLINT)(i + 1), column->c_type, at + sizeof(SQLLEN),
                                       (SQLLEN)column->room, (SQLLEN *)at);
        if (!fetching_succeeded(job, outcome)) return false;
    }
    return true;
}

// Whether the columns are those that are known already: then their bindings hold.
static bool same_columns(const struct odbc_column *old, const struct odbc_column *fresh, SQLSMALLINT count)
{
    for (SQLSMALLINT i = 0; i < count; i++)
        if (old[i].type != fresh[i].type || old[i].kind != fresh[i].kind || old[i].size != fresh[i].size ||
            old[i].digits != fresh[i].digits || old[i].name.length != fresh[i].name.length ||
            memcmp(old[i].name.at, fresh[i].name.at, old[i].name.length) != 0)
            return false;
    return true;
}

bool odbc_describe_columns(struct odbc_session *session, struct odbc_job *job)
{
    struct odbc_statement *statement = job->statement;
    struct odbc_column *old = statement->columns;
    SQLSMALLINT old_count = statement->column_count, count = 0;
    if (!fetching_succeeded(job, SQLNumResultCols(statement->handle, &count))) return false;
    struct odbc_column *fresh = count > 0 ? calloc((size_t)count, sizeof *fresh) : NULL;
    if (count > 0 && !fresh) return failed(job, "HY001", "no memory for columns");

    statement->columns = fresh;
    statement->column_count = count;
    bool good = true;
    for (SQLSMALLINT i = 0; i < count && good; i++)
        good = describe_column(session, job, (SQLUSMALLINT)(i + 1));
    bool same = good && count > 0 && count == old_count && same_columns(old, fresh, count);
    struct odbc_statement other = {.columns = same ? fresh : old, .column_count = same ? count : old_count};
    if (same) {
        statement->columns = old;
    } else {
        unbind_columns(statement);
        other.block = statement->block;
        statement->block = NULL;
        statement->description++;
        statement->fetched = 0;
        if (good && count > 0) good = bind_columns(session, job);
    }
    odbc_forget_columns(&other);
    return good;
}

// ---- rows

static bool append_value(struct odbc_statement *statement, SQLLEN length, const void *from)
{
    return odbc_buffer_append(&statement->rows, &length, sizeof length) &&
           (length <= 0 || odbc_buffer_append(&statement->rows, from, (size_t)length)) &&
           odbc_buffer_align(&statement->rows);
}

// How many bytes a cut piece has: a driver may leave its end free, so as not to cut a character in two.
static size_t whole_characters(const char *at, size_t most, size_t unit)
{
    static const char zeros[sizeof(SQLWCHAR)];
    size_t least = most - LONGEST_CHARACTER;
    while (unit > 0 && most > least && memcmp(at + most - unit, zeros, unit) == 0)
        most -= unit;
    return most;
}

// The bytes of a whole text whose length the driver does not tell: up to the NUL.
static size_t up_to_nul(const char *at, size_t most, size_t unit)
{
    static const char zeros[sizeof(SQLWCHAR)];
    size_t length = 0;
    while (length < most && memcmp(at + length, zeros, unit) != 0)
        length += unit;
    return length;
}

// Reads a value of any length. Its length goes in front when it is known.
static bool append_pieces(struct odbc_session *session, struct odbc_job *job, SQLUSMALLINT number)
{
    struct odbc_statement *statement = job->statement;
    struct odbc_column *column = &statement->columns[number - 1];
    struct odbc_buffer *rows = &statement->rows;
    size_t end = column->c_type == SQL_C_WCHAR ? sizeof(SQLWCHAR) : column->c_type == SQL_C_CHAR ? 1 : 0; // of the NUL
    size_t header = rows->length;
    SQLLEN total = 0;
    if (!odbc_buffer_append(rows, &total, sizeof total)) return failed(job, "HY001", "no memory for a value");
    while (true) {
        if (odbc_cancelled(session, job)) return false;
        if (!odbc_buffer_reserve(rows, PIECE + 8)) return failed(job, "HY001", "no memory for a value");
        memset(rows->at + rows->length, 0, sizeof(SQLWCHAR));                              // for up_to_nul
        memset(rows->at + rows->length + PIECE - LONGEST_CHARACTER, 0, LONGEST_CHARACTER); // for whole_characters
        SQLLEN left = 0;
        SQLRETURN outcome =
            SQLGetData(statement->handle, number, column->c_type, rows->at + rows->length, PIECE, &left);
        if (outcome == SQL_NO_DATA) break;
        if (!fetching_succeeded(job, outcome)) return false;
        if (left == SQL_NULL_DATA) {
            total = SQL_NULL_DATA;
            break;
        }
        size_t most = PIECE - end;
        // With more to come, "left" is what was there before this piece, or unknown.
        bool unknown = left < 0, cut = unknown ? outcome != SQL_SUCCESS : (size_t)left > most;
        if (unknown && !cut && end == 0) return failed(job, "HY000", "the driver does not tell how long a value is");
        const char *piece = rows->at + rows->length;
        size_t got = cut ? whole_characters(piece, most, end) : unknown ? up_to_nul(piece, most, end) : (size_t)left;
        rows->length += got;
        total += (SQLLEN)got;
        if (!cut) break;
    }
    memcpy(rows->at + header, &total, sizeof total);
    return odbc_buffer_align(rows) || failed(job, "HY001", "no memory for a value");
}

// Whether the driver had more bytes for this value than room.
static bool is_cut(const struct odbc_column *column, SQLLEN length)
{
    if (column->c_type == SQL_C_BINARY) return length < 0 || length > (SQLLEN)column->room;
    if (column->c_type != SQL_C_CHAR && column->c_type != SQL_C_WCHAR) return false;
    SQLLEN end = column->c_type == SQL_C_WCHAR ? (SQLLEN)sizeof(SQLWCHAR) : 1;
    return length < 0 || length > (SQLLEN)column->room - end; // below 0: unknown
}

static bool append_row(struct odbc_session *session, struct odbc_job *job, size_t row)
{
    struct odbc_statement *statement = job->statement;
    for (SQLSMALLINT i = 0; i < statement->column_count; i++) {
        struct odbc_column *column = &statement->columns[i];
        SQLUSMALLINT number = (SQLUSMALLINT)(i + 1);
        const char *at = column->room ? statement->block + row * statement->row_size + column->offset : NULL;
        SQLLEN length = 0;
        if (at) memcpy(&length, at, sizeof length);
        if (!at || (length != SQL_NULL_DATA && is_cut(column, length))) {
            if (at && statement->block_rows > 1 &&
                !fetching_succeeded(
                    job, SQLSetPos(statement->handle, (SQLSETPOSIROW)(row + 1), SQL_POSITION, SQL_LOCK_NO_CHANGE)))
                return false;
            if (!append_pieces(session, job, number)) return false;
            continue;
        }
        bool text = column->c_type == SQL_C_CHAR || column->c_type == SQL_C_WCHAR || column->c_type == SQL_C_BINARY;
        if (length != SQL_NULL_DATA && !text) length = (SQLLEN)column->room; // drivers need not set it for numbers
        if (!append_value(statement, length, at + sizeof(SQLLEN))) return failed(job, "HY001", "no memory for rows");
    }
    statement->row_count++;
    return true;
}

// Rows that were taken make room.
static void forget_taken(struct odbc_statement *statement)
{
    struct odbc_buffer *rows = &statement->rows;
    if (statement->position == 0) return;
    memmove(rows->at, rows->at + statement->position, rows->length - statement->position);
    rows->length -= statement->position;
    statement->row_count -= statement->taken;
    statement->position = statement->taken = 0;
}

bool odbc_fetch_rows(struct odbc_session *session, struct odbc_job *job)
{
    struct odbc_statement *statement = job->statement;
    forget_taken(statement);
    while (statement->open && statement->row_count < job->limit && statement->rows.length < JOB_BYTES) {
        if (odbc_cancelled(session, job)) return false;
        statement->fetched = 1;
        if (session->abilities.cancels_fetch) odbc_call_begins(session);
        SQLRETURN outcome = SQLFetch(statement->handle);
        if (session->abilities.cancels_fetch) odbc_call_ended(session, outcome);
        if (outcome == SQL_NO_DATA) {
            statement->open = false;
            break;
        }
        if (!fetching_succeeded(job, outcome)) return false;
        size_t count = statement->block_rows == 1                   ? 1
                       : statement->fetched < statement->block_rows ? statement->fetched
                                                                    : statement->block_rows;
        for (size_t row = 0; row < count; row++) {
            // A failure in some rows of a block is told as a warning; their values are anything.
            bool bad = statement->block_rows > 1 && row_states(statement)[row] == SQL_ROW_ERROR;
            if (bad) return fetching_succeeded(job, SQL_ERROR);
            if (!append_row(session, job, row)) return false;
        }
    }
    return true;
}
