// The Ruby classes: Client, a connection, and Handle, a statement of it.
#ifndef HEDDLE_ODBC_CLIENT_H
#define HEDDLE_ODBC_CLIENT_H

#include "statement.h"

#include <ruby.h>
#include <ruby/encoding.h>

struct odbc_client {
    struct odbc_session *session;
    int reader;            // the pipe's end that Ruby waits for; -1 once Ruby's IO closes it
    bool unanswered;       // a job was started, and #finish has not taken its byte
    VALUE handle;          // of the job that runs
    rb_encoding *encoding; // of text for the narrow functions, and of values
    bool ends_at_nul;      // whether the database has no texts with a NUL, and the driver would cut them off
    bool local;            // whether timestamps are of the process's time zone
};

struct odbc_handle {
    struct odbc_statement *statement; // NULL once released
    struct odbc_statement *late;      // … while its rows are taken: given up afterwards
    bool taking;
    VALUE client, columns;
    unsigned description; // which columns are in there
};

struct odbc_client *odbc_client_of(VALUE client);
struct odbc_handle *odbc_handle_of(VALUE handle);

// Fills in a buffer with a String, as the session's text is.
void odbc_put_text(const struct odbc_client *, struct odbc_buffer *, VALUE string);

// A String of bytes that the driver gave.
VALUE odbc_text(const struct odbc_client *, const char *at, size_t length);

// Writes values into the job's parameters; raises TypeError or ArgumentError for what cannot be bound.
void odbc_put_parameters(const struct odbc_client *, struct odbc_parameters *, VALUE values);

// Takes up to `limit` fetched rows.
VALUE odbc_take_rows(const struct odbc_client *, struct odbc_statement *, size_t limit);

void odbc_handle_define(VALUE module);
void odbc_parameters_define(VALUE module);
void odbc_values_define(void);

// A Handle of a new statement.
VALUE odbc_handle_new(VALUE client);

#endif
