// A statement of the driver's, with what is known of its parameters and columns, and rows that were fetched.
//
// All functions but odbc_statement_release run on the session's thread. Ruby reads the struct while no job runs.
#ifndef HEDDLE_ODBC_STATEMENT_H
#define HEDDLE_ODBC_STATEMENT_H

#include "session.h"

// What a column's values become.
enum odbc_kind {
    ODBC_INTEGER,
    ODBC_UNSIGNED,
    ODBC_FLOAT,
    ODBC_BOOLEAN,
    ODBC_DECIMAL,
    ODBC_DATE,
    ODBC_TIMESTAMP,
    ODBC_TIME, // as text: ODBC's own struct has no fraction
    ODBC_TEXT,
    ODBC_BYTES,
    ODBC_UUID,
    ODBC_LOOSE // described as an integer, by a database whose columns may hold values of any type
};

struct odbc_column {
    struct odbc_buffer name, table; // as the job's text is
    enum odbc_kind kind;
    SQLSMALLINT type, digits, nullable;
    SQLULEN size;
    SQLSMALLINT c_type;
    size_t offset, room; // in a row of the block; room is 0 for a column that is read in pieces
};

struct odbc_statement {
    struct odbc_session *session; // holds a reference
    struct odbc_statement *next_released;
    struct odbc_statement *next, *previous; // of the session's, while it has a handle
    SQLHSTMT handle;
    struct odbc_buffer sql; // as it was prepared
    unsigned epoch;         // see struct odbc_session
    bool open;              // rows may follow
    bool more;              // another result may follow
    bool alone;             // no result follows one without rows: the driver is not asked

    SQLSMALLINT parameter_count;
    struct odbc_parameter_type *parameter_types;

    SQLSMALLINT column_count;
    struct odbc_column *columns;
    unsigned description; // counts how often the columns were described
    SQLLEN affected;
    int warnings;

    char *block; // rows that the driver writes
    size_t row_size, block_rows;
    SQLULEN fetched;

    // The fetched rows: of each value its length (SQLLEN, SQL_NULL_DATA for NULL), then its bytes, up to a multiple
    // of 8.
    struct odbc_buffer rows;
    size_t row_count, taken, position; // rows in there, of these taken, where the next one begins
};

// Without memory NULL. Ruby's thread calls this; the driver's handle is made by the first job.
struct odbc_statement *odbc_statement_new(struct odbc_session *);

// Gives the statement up, from any thread and in a finalizer: it is freed with the session's next job.
void odbc_statement_release(struct odbc_statement *);

void odbc_statement_free(struct odbc_statement *);

// Frees the driver's handles of all statements that the session still has, or only forgets them.
void odbc_statements_drop(struct odbc_session *, bool frees);

// The jobs. Each notes its failure in the job.
void odbc_perform_prepare(struct odbc_session *, struct odbc_job *); // and describe
void odbc_perform_run(struct odbc_session *, struct odbc_job *);     // execute, and fetch the first rows
void odbc_perform_fetch(struct odbc_session *, struct odbc_job *);   // more rows
void odbc_perform_next(struct odbc_session *, struct odbc_job *);    // the next result, and its first rows
void odbc_perform_tables(struct odbc_session *, struct odbc_job *);  // SQLTables: catalog, schema, table
void odbc_perform_close(struct odbc_session *, struct odbc_job *);   // the cursor

// Notes the error of a call. Returns whether it succeeded.
bool odbc_succeeded(struct odbc_job *, SQLRETURN, SQLSMALLINT type, SQLHANDLE);

// Describes the columns and binds those of a known length; fetching.c.
bool odbc_describe_columns(struct odbc_session *, struct odbc_job *);

// Whether nobody waits for the job any more; it has failed then.
bool odbc_cancelled(struct odbc_session *, struct odbc_job *);

// Fetches until the job's limit, or some hundred kilobytes.
bool odbc_fetch_rows(struct odbc_session *, struct odbc_job *);

void odbc_forget_columns(struct odbc_statement *);

#endif
