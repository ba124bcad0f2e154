// A connection to a MySQL or MariaDB server, on a Heddle::Stream. This header is shared by the files of this layer:
// protocol.c (packets), sql.c (the text of statements), parameters.c and values.c (values in requests and in rows),
// results.c (whole replies), multiplexed.c (statements of several tasks in flight), login.c and commands.c (the methods
// of Heddle::DB::MySQL::Protocol), idle.c (closes without a next request). init.c knows all of them; no file calls one
// that calls it. The order of requests is decided in Ruby (lib/heddle/db).
#ifndef HEDDLE_DB_MYSQL_PROTOCOL_H
#define HEDDLE_DB_MYSQL_PROTOCOL_H

#include "heddle.h"

#include "db/protocol.h"
#include "db/result.h"
#include "wire/mysql/rows.h"

#include <ruby/encoding.h>

enum {
    MYSQL_IN_FLIGHT = 256,     // most outstanding replies
    MYSQL_CLOSES_AT_ONCE = 64, // closes that db/mysql/idle.c sends at once
    MYSQL_FORMS = 4            // of a statement, for values of other types
};

// Commands.
enum { MYSQL_QUERY = 0x03, MYSQL_PREPARE = 0x16, MYSQL_EXECUTE = 0x17, MYSQL_RESET = 0x1a, MYSQL_FETCH = 0x1c };

// The id of the last prepared statement; MariaDB only.
#define MYSQL_LAST_STATEMENT UINT32_C(0xffffffff)

// A buffer that grows and is reused.
struct mysql_bytes {
    uint8_t *at;
    size_t length, capacity;
};

// A reply that the server owes.
struct mysql_owed {
    uint8_t start; // the number of its first packet
    bool prepare;  // to a prepare, else to an execution
};

// What the oldest reply goes on with, behind the definitions of columns.
enum mysql_part {
    MYSQL_WHOLE,    // nothing of it was read
    MYSQL_PREPARED, // a description of the statement
    MYSQL_RESULT,   // a result, from its beginning
    MYSQL_ROWS,
    MYSQL_NOTHING
};

struct mysql_protocol {
    struct db_protocol base; // first
    // The current packet if it is not in the stream's buffer: a large one, or several joined.
    VALUE separate;
    struct mysql_bytes request;
    struct mysql_bytes row; // a copy of the row, for values that are made by Ruby code
    uint64_t capabilities;
    struct mysql_owed owed[MYSQL_IN_FLIGHT]; // the outstanding replies, the oldest at `first`
    uint32_t first;
    uint32_t definitions; // packets of the oldest reply that describe columns, and are to come before its next part
    enum mysql_part part;
    bool continues; // a packet of several parts goes on behind the one that is being received
    uint32_t last;  // the last prepared statement; 0 if it is unknown which one that is
    bool last_open; // … which was not closed
    uint16_t status;
    uint16_t settled; // the part of it that describes the session, at #settle
    bool changed;     // the server reported a change of the session since
    uint8_t sequence;
    bool whole;   // `separate` uses no more memory than its bytes need
    bool unasked; // the server ended the session with an error that no request has caused
    // For idle.c: whether it watches this connection, since when the connection is idle, and at which exchange count.
    bool watched;
    deadline_t idle_since;
    uint64_t exchanges, seen;
    bool local;    // DATETIME is in this process's time zone, not in UTC
    bool booleans; // TINYINT(1) is true or false
    bool direct;   // the server accepts a prepare and its execution together: MariaDB since 10.2
    bool fixes;    // the server keeps the types that a statement's values had first: MySQL since 8.0.22
    VALUE refused; // the SQL that the last exchange has sent with its execution, and the server refused; nil
    rb_encoding *encoding;
};

extern VALUE mysql_cProtocol, mysql_cColumns, mysql_cPrepared;

struct mysql_protocol *mysql_protocol_of(VALUE self);

// ---- protocol.c: packets

void mysql_bytes_reserve(struct mysql_bytes *bytes, size_t room);
void mysql_bytes_append(struct mysql_bytes *bytes, const void *from, size_t length);

VALUE mysql_protocol_allocate(VALUE klass);

// The payload of the next packet; valid until the next call.
struct mysql_span mysql_packet(struct mysql_protocol *protocol);

// Begin and end reading the oldest outstanding reply.
void mysql_reply_begin(struct mysql_protocol *protocol);
void mysql_reply_end(struct mysql_protocol *protocol);

// Appends a request: one command byte and its payload. The server then owes one more reply. The next read sends the
// request.
void mysql_request(struct mysql_protocol *protocol, uint8_t command, const void *bytes, size_t length);

// Queues the closes of statements that no code refers to any more, before the next request.
void mysql_queue_pending_closes(struct mysql_protocol *protocol);

// Like mysql_request, for a whole payload.
void mysql_request_built(struct mysql_protocol *protocol, const struct mysql_bytes *built);

// Writes a prepare and its execution, which mysql_build_execute has built for MYSQL_LAST_STATEMENT; MariaDB only. The
// statement that was prepared before has to be closed: a server at its limit of statements refuses the prepare, and
// would execute that one with these values.
void mysql_request_new(struct mysql_protocol *protocol, VALUE sql, const struct mysql_bytes *built);

// Writes the close of the statement that was prepared last, which has no reply; MariaDB only.
void mysql_close_last(struct mysql_protocol *protocol);

// Queues the close of a statement, piggybacked on the next request.
void mysql_queue_close(struct mysql_protocol *protocol, uint32_t id);

// ---- exchange.c

// Runs the body as one exchange.
VALUE mysql_exchange(struct db_exchange *exchange);

// mysql_exchange with two arguments.
VALUE mysql_exchange_with(VALUE self, VALUE (*body)(struct db_exchange *), VALUE first, VALUE second);

// ---- parameters.c

// Writes COM_STMT_EXECUTE to the buffer. Runs Ruby code; raises TypeError, ArgumentError.
void mysql_build_execute(struct mysql_protocol *protocol, struct mysql_bytes *bytes, uint32_t id, VALUE arguments,
                         bool cursor);

// Of the request in protocol->request: puts in another statement's id, and finds the types of `count` values, two bytes
// each.
void mysql_built_for(struct mysql_protocol *protocol, uint32_t id);
uint8_t *mysql_built_types(struct mysql_protocol *protocol, size_t count);

// ---- values.c

struct mysql_columns {
    VALUE names;            // nil until requested
    rb_encoding *described; // the encoding of names in the definitions
    uint32_t count;
    bool copies;                    // some values are made by Ruby code
    bool times;                     // some are times, which Ruby code makes where they are local ones
    bool fresh;                     // no Ruby code refers to it yet: may be redefined
    struct mysql_bytes definitions; // packets, each after its length
    struct mysql_field *fields;     // after `encodings`, in the same memory
    int encodings[];                // encoding indexes, one per column
};

struct mysql_columns *mysql_columns_of(VALUE columns);
VALUE mysql_columns_new(uint32_t count);

// Returns the given columns, to be redefined, if they are fresh and have the same count; otherwise new ones. nil: no
// columns are given.
VALUE mysql_columns_anew(VALUE columns, uint32_t count);
void mysql_columns_define(struct mysql_protocol *protocol, VALUE columns, uint32_t index, struct mysql_span definition);

// Whether reading the values may run Ruby code, which may let other threads run.
bool mysql_columns_copied(const struct mysql_protocol *protocol, const struct mysql_columns *columns);

// Returns the row's values as an Array. Runs Ruby code only where mysql_columns_copied. Keep the columns' object on the
// stack.
VALUE mysql_row_values(struct mysql_protocol *protocol, struct mysql_span packet, const struct mysql_columns *columns,
                       bool text);

// ---- results.c

// A statement as the server has it for values of certain types.
struct mysql_form {
    uint32_t id;
    uint8_t *types; // NULL before the first execution, and on servers that take any types
};

struct mysql_statement {
    VALUE columns;         // nil for a statement without a result
    VALUE parameter_types; // as Columns; nil if not requested, or without parameters
    VALUE sql;
    struct pending_closes *pending_closes;
    struct mysql_form forms[MYSQL_FORMS]; // the one that was used last is the first
    uint16_t count;                       // of the forms; 0: the server does not have the statement any more
    uint16_t parameters;
    bool open;
    bool writes; // inserts, updates, deletes or replaces rows
};

struct mysql_statement *mysql_statement_of(VALUE prepared);

// Chooses the form for the values of the request that was built, and completes the request. Returns false if there is
// none: then the statement has to be prepared again, see mysql_statement_add.
bool mysql_statement_choose(struct mysql_protocol *protocol, struct mysql_statement *statement);
void mysql_statement_add(struct mysql_protocol *protocol, VALUE statement, const struct mysql_prepared *prepared,
                         VALUE columns);

// Ends all forms: the server does not have them any more, or their closes are noted.
void mysql_statement_forget(struct mysql_statement *statement);
void mysql_statement_close(struct mysql_statement *statement);

// Reads a Heddle::DB::Result with all following results; or returns a Heddle::DB::ServerError without raising it.
// `known`: the columns that the server may leave out, which are those that it sent last for this statement; may be
// replaced. NULL if there are none. `owner` is the Prepared that has them; nil for a variable on the stack. `writes`:
// the rows are those that the statement has changed.
VALUE mysql_read_result(struct mysql_protocol *protocol, VALUE *known, VALUE owner, bool text, bool writes);

// Reads the reply to a prepare: 0, or the error, which is marked: the server has not begun the statement. Skips the
// types of parameters if `types` is NULL.
VALUE mysql_read_prepared(struct mysql_protocol *protocol, struct mysql_prepared *prepared, VALUE *columns,
                          VALUE *types);

// Reads the replies to a prepare and to its execution, which were asked for together: a Result or an error. With
// `keep`, which keeps the statement, [Prepared, Result or error] or an error.
VALUE mysql_read_new(struct mysql_protocol *protocol, VALUE sql, bool keep);

// Reads what is left of the oldest reply, for nobody.
void mysql_drop_reply(struct mysql_protocol *protocol);

// Makes an open Prepared.
VALUE mysql_prepared_new(struct mysql_protocol *protocol, const struct mysql_prepared *prepared, VALUE columns,
                         VALUE types, VALUE sql);

// Reads the rows of a cursor, or returns the error; notes whether there are more rows.
VALUE mysql_read_fetched(struct mysql_protocol *protocol, VALUE columns);

// The Ruby object for an error packet.
VALUE mysql_error_value(struct mysql_protocol *protocol, struct mysql_span packet);

// The server's number of the error.
int mysql_error_code(VALUE error);

// Returns whether the server closes the connection after this error.
bool mysql_error_is_final(VALUE error);

// Returns whether the server, at its limit of statements, has refused to prepare one, and so has not begun it.
bool mysql_wants_room(VALUE answer);

// ---- sql.c

// Whether the String is of the kind :plain (Heddle::DB::Driver#kind).
bool mysql_is_plain(VALUE protocol, VALUE sql);

// The SQL as a String in the connection's encoding. Raises TypeError.
VALUE mysql_sql_text(struct mysql_protocol *protocol, VALUE sql);

// Returns whether rows of the statement's result are rows that it has changed (insert … returning).
bool mysql_sql_is_write(VALUE sql);

// Returns whether the server certainly counts as many parameters as there are arguments: with another number it would
// read the bytes of values as their types.
bool mysql_sql_has_parameters(VALUE sql, VALUE arguments);

// Returns whether the statement asks for what another one has left in the session, such as last_insert_id().
bool mysql_sql_looks_back(VALUE sql);

// ---- commands.c

extern struct db_operations mysql_operations;

// Whether the server has told of a change of the session since #settle.
bool mysql_session_changed(const struct mysql_protocol *protocol);

// ---- idle.c

// Makes the helper send pending closes after a second without a request.
void mysql_flush_when_idle(VALUE self);

void mysql_idle_define(void);

void mysql_parameters_define(void);
void mysql_values_define(void);
void mysql_results_define(void);
void mysql_login_define(void);
void mysql_commands_define(void);
void mysql_multiplexed_define(void);
void mysql_sql_define(void);

// Look up the Ruby classes of values, once they are loaded.
void mysql_parameters_load_classes(void);
void mysql_values_load_classes(void);
void mysql_results_load_classes(void);

#endif
