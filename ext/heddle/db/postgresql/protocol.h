// A connection to a PostgreSQL server, on a Heddle::Stream: what the files of this layer share. protocol.c has the
// messages, sql.c what the text of a statement says, parameters.c and values.c what goes in and comes out, results.c
// whole replies, statement_timeout.c the caller's time for the server, multiplexed.c statements of several tasks in
// flight, login.c, session.c, commands.c, pipeline.c, copy.c and interrupted.c the methods of
// Heddle::DB::PostgreSQL::Protocol. init.c knows all of them; no file calls one that calls it. Ruby decides what is
// asked when (lib/heddle/db/postgresql).
#ifndef HEDDLE_DB_POSTGRESQL_PROTOCOL_H
#define HEDDLE_DB_POSTGRESQL_PROTOCOL_H

#include "heddle.h"

#include "db/protocol.h"
#include "db/result.h"
#include "db/postgresql/types.h"
#include "wire/postgresql/messages.h"
#include "wire/postgresql/requests.h"
#include "wire/postgresql/sql.h"

#include <ruby/encoding.h>

enum { POSTGRESQL_IN_FLIGHT = 256 }; // replies that may be owed at once

// OIDs of the types that a parameter's class says (pg_type.dat of the server's source).
enum postgresql_oid {
    POSTGRESQL_ANY = 0, // the server finds out
    POSTGRESQL_BOOL = 16,
    POSTGRESQL_BYTEA = 17,
    POSTGRESQL_INT8 = 20,
    POSTGRESQL_INT2 = 21,
    POSTGRESQL_INT4 = 23,
    POSTGRESQL_FLOAT8 = 701,
    POSTGRESQL_NUMERIC = 1700,
    POSTGRESQL_XID8 = 5069
};

// What the server may send next.
enum postgresql_state {
    POSTGRESQL_EXTENDED,  // answers to the extended protocol, if any are owed
    POSTGRESQL_SIMPLE,    // … to a simple Query: values come as text
    POSTGRESQL_SUSPENDED, // nothing; the portal that was executed last has more rows
    POSTGRESQL_COPY_IN,   // COPY FROM STDIN: nothing, it waits for data
    POSTGRESQL_COPY_OUT   // COPY TO STDOUT: rows
};

// The caller's time, which goes to the server in front of its statement: see statement_timeout.c.
struct postgresql_statement_timeout {
    VALUE setter;     // the Prepared that sets it; nil
    int64_t own;      // milliseconds that the session allows without it; 0 for no limit
    deadline_t until; // of the request that is being built; DEADLINE_NEVER if the server does not learn it
    bool enabled;
    bool put;  // in front of the request that is being built
    bool left; // the transaction block may have that of an earlier statement
    struct {
        deadline_t until;         // as above
        bool ahead;               // the answer to the setter is in front, and was not read to its end
    } owed[POSTGRESQL_IN_FLIGHT]; // of the replies that are owed; empty for others
};

struct postgresql_protocol {
    struct db_protocol base; // first
    enum postgresql_state state;
    VALUE apart;         // a large message, which is not in the stream's buffer
    VALUE notices;       // Array of Hashes that no caller has taken yet; nil. Empty unless `noticing`
    VALUE messages;      // Array of [channel, payload, process] of NOTIFY that no caller has taken yet; nil
    VALUE settings;      // Hash of the parameters that the server reported
    VALUE types;         // Hash of OID => Array, of the types that were looked up
    VALUE unknown_types; // Hash whose keys are OIDs that are to be looked up; nil for none
    VALUE waiting;       // Array of [row, index, OID, bytes] whose types are not known yet; nil for none
    VALUE wanted_texts;  // Array of [OID, bytes] that the server is to be asked for; nil for none
    VALUE server_texts;  // Hash of [OID, bytes] => text
    VALUE preparing;     // the Prepared whose Parse this exchange has sent; nil
    size_t notices_size, messages_size; // bytes that these take
    struct pg_buffer request;
    struct pg_buffer row;    // a copy of a row, for values that Ruby code makes
    struct pg_buffer looked; // a copy of the text that was looked at last: a statement is looked at several times
    struct pg_sql look;      // what it says
    bool looked_backslashes; // as `backslashes` was then
    uint32_t names;          // statements that were ever prepared
    char tag[17];            // part of the names of statements, where other clients have the same session of the server
    struct postgresql_statement_timeout timeout;
    enum pg_transaction transaction;
    int version;      // of the server; 0 until it is known
    bool noticing;    // notices are kept
    bool local;       // times are in the time zone of this process, not in UTC
    bool backslashes; // are active in '…', too: standard_conforming_strings is off
    bool textual;     // for a library that reads the server's texts: see textual=
    bool rolled_back; // the server answered the last statement with ROLLBACK
    bool settling;    // types are being looked up
    bool undecoded;   // no value goes through what programs registered: see run_own
};

extern VALUE postgresql_cProtocol, postgresql_cColumns, postgresql_cPrepared;

struct postgresql_protocol *postgresql_protocol_of(VALUE self);

// ---- exchange.c

// Runs the body as one exchange. A ReadyForQuery is a reply.
VALUE postgresql_exchange(struct db_exchange *exchange);
VALUE postgresql_exchange_with(VALUE self, VALUE (*body)(struct db_exchange *), VALUE first, VALUE second);

// ---- protocol.c

void postgresql_become(struct postgresql_protocol *protocol, enum postgresql_state state);
bool postgresql_in_copy(const struct postgresql_protocol *protocol);

VALUE postgresql_protocol_allocate(VALUE klass);

// Text of the server for values that are names, and for messages (server_text.h).
VALUE postgresql_utf8(struct pg_span span);
VALUE postgresql_text(struct pg_span span);

// The next message of the server; good until the next call. Notices, notifications and settings, which may come at any
// time, are kept and not returned.
struct pg_message postgresql_message(struct postgresql_protocol *protocol);

// Whether the next message has come as a whole.
bool postgresql_has_message(struct postgresql_protocol *protocol);

// Keeps the notices, notifications and settings that have arrived, without waiting. Any other message stays.
enum postgresql_arrived {
    POSTGRESQL_NOTHING, // and nothing is left to be read
    POSTGRESQL_PART,    // of a message; or more than can be kept at once
    POSTGRESQL_MESSAGE, // of another kind
    POSTGRESQL_GONE     // the server has closed the connection
};
enum postgresql_arrived postgresql_consume_input(struct postgresql_protocol *protocol);

// The oldest notification that was kept, [channel, payload, process]; nil for none.
VALUE postgresql_take_notification(struct postgresql_protocol *protocol);

// Keeps a notice for whoever takes them.
void postgresql_keep_notice(struct postgresql_protocol *protocol, struct pg_message message);

// Keeps what the server says of itself.
void postgresql_store_setting(struct postgresql_protocol *protocol, VALUE name, VALUE value);

// The same without keeping anything: while logging in.
struct pg_message postgresql_any_message(struct postgresql_protocol *protocol);

// Makes a buffer of the layer grow: pg_buffer.grow. Raises NoMemoryError.
bool postgresql_grow(struct pg_buffer *buffer, size_t room);

// The bytes of a String, which must stay on the stack.
struct pg_span postgresql_span_of(VALUE string);

// Sends protocol->request, which was built by pg_put_…, after the closes that wait. `syncs` replies are owed then.
void postgresql_send(struct postgresql_protocol *protocol, uint32_t syncs);

// The same for a request whose answer must be the next one. Raises ConnectionLost if another answer is still to come.
void postgresql_ask(struct postgresql_protocol *protocol);

// The request was appended to the stream: the server owes so many more replies.
void postgresql_requested(struct postgresql_protocol *protocol, struct stream *stream, uint32_t syncs);

// Of the oldest owed reply, which is the one that is being read: whether the answer to the setter is in front.
bool *postgresql_timeout_ahead(struct postgresql_protocol *protocol);

// Whether the server knew until when the caller of that reply waits, and that time has passed.
bool postgresql_timed_out(struct postgresql_protocol *protocol);

// That reply was read to its end.
void postgresql_replied(struct postgresql_protocol *protocol);

// Raises for what pg_put_… refused: ArgumentError for what the caller gave.
void postgresql_check(enum pg_written written);

// Queues the closes that wait, in front of the next request.
void postgresql_queue_pending_closes(struct postgresql_protocol *protocol);

// The server's name of a statement: "h", its number, and the tag.
struct postgresql_name {
    uint8_t bytes[30];
    size_t length;
};
struct pg_span postgresql_name_of(const struct postgresql_protocol *protocol, uint32_t id,
                                  struct postgresql_name *name);

// ---- parameters.c

// Arguments made ready to be sent. Everything that runs Ruby code or raises happens in postgresql_arguments; after it
// nothing of Ruby runs until the request is built. Stays where it is: `types` may point into it.
enum { POSTGRESQL_FEW = 16 };
struct postgresql_arguments {
    VALUE values; // Array of Integer, Float, true, false, nil, String (text, or bytes of a bytea), [bytes]
    VALUE holder; // keeps `types` of more than a few arguments
    uint32_t *types;
    size_t count;
    uint32_t few[POSTGRESQL_FEW];
};
void postgresql_arguments(struct postgresql_protocol *protocol, VALUE arguments, struct postgresql_arguments *ready);

// Whether a statement that the server knows to have parameters of these types takes the arguments. `declared` are the
// types that this client gave when the statement was prepared.
bool postgresql_arguments_fit(const struct postgresql_arguments *ready, const uint32_t *declared, const uint32_t *types,
                              size_t count);

// The arguments with those replaced of which only the server's types say what they are; an exception that is not raised
// if the server refuses the statement. Call it before the exchange: it may need another one. `prepared` is nil for a
// statement that is not prepared.
VALUE postgresql_settled(VALUE protocol, VALUE sql, VALUE arguments, VALUE prepared);

// Bind into protocol->request. `types`: those of the statement, NULL for the arguments' own.
void postgresql_put_bind(struct postgresql_protocol *protocol, struct pg_span portal, struct pg_span statement,
                         const struct postgresql_arguments *ready, const uint32_t *types);

// Whether postgresql_settled may ask the server. May run Ruby code.
bool postgresql_arguments_doubtful(VALUE protocol, VALUE arguments);

// ---- columns.c

struct postgresql_column {
    uint32_t oid;
    struct postgresql_type type;
};

struct postgresql_columns {
    VALUE names; // nil until asked for
    VALUE types; // protocol->types
    uint32_t count;
    bool copies;   // there are values that Ruby code makes
    size_t length; // of the RowDescription, which stands behind the columns: few callers ask for more than the types
    struct postgresql_column columns[];
};

struct postgresql_columns *postgresql_columns_of(VALUE self);

// From a RowDescription.
VALUE postgresql_columns_new(struct postgresql_protocol *protocol, struct pg_message message);

// Looks again for a type that was not known when the columns were described.
void postgresql_column_known(struct postgresql_protocol *protocol, VALUE columns, uint32_t index);

// ---- values.c

// An Array of the row's values, of the columns of `description`. Runs Ruby code only for columns that say `copies`.
// Values whose types are unknown are nil, and in protocol->waiting.
VALUE postgresql_row_values(struct postgresql_protocol *protocol, struct pg_message message, VALUE description);

// ---- results.c

struct postgresql_statement {
    VALUE sql;
    VALUE columns; // nil for a statement without a result
    VALUE known;   // protocol->types
    struct pending_closes *pending_closes;
    uint32_t id;
    uint32_t count; // parameters
    bool open;
    bool takes_timeout;         // see postgresql_takes_statement_timeout
    uint32_t *declared, *types; // of the parameters, in one piece of memory
};

struct postgresql_statement *postgresql_statement_of(VALUE prepared);

// Array of the OIDs of its parameters' types.
VALUE postgresql_statement_types(VALUE prepared);

// A statement that the server does not have yet; it is `open` once the server has parsed and described it.
VALUE postgresql_prepared_new(struct postgresql_protocol *protocol, VALUE sql, const uint32_t *declared, size_t count);

// Makes another statement of the same text of it, for parameters of other types. The one before is closed.
void postgresql_prepared_renew(struct postgresql_protocol *protocol, VALUE prepared, const uint32_t *declared,
                               size_t count);

// A Heddle::DB::ServerError, which is not raised.
VALUE postgresql_error_value(struct pg_message message);

// Whether the error ends the session: no ReadyForQuery follows.
bool postgresql_is_fatal(struct pg_message message);

// Reads up to the next ReadyForQuery: a Heddle::DB::Result, or a Heddle::DB::ServerError, which is not raised. `known`
// are the columns of a statement whose description was not asked for; a description that comes replaces them. NULL for
// none. `owner` is the Prepared that has them; nil for a variable on the stack. `prepared` gets the description of a
// statement's parameters; nil for none.
VALUE postgresql_read_result(struct postgresql_protocol *protocol, VALUE *known, VALUE owner, VALUE prepared);

// CopyFail.
void postgresql_copy_put_refusal(struct pg_buffer *buffer, const char *reason);

// Reads up to the next ReadyForQuery: a Heddle::DB::Result of each of `count` statements that had one Sync. After an
// error only the results before it; `error` gets it, nil for none.
VALUE postgresql_read_results(struct postgresql_protocol *protocol, size_t count, VALUE *error);

// ---- statement_timeout.c

// Begins the request that is being built: before anything of it is in protocol->request. `takes`: whether its statement
// may get the time that its caller has; every statement of a transaction block is freed from that of one before.
// Returns whether something was put, whose answer postgresql_read_result passes over.
bool postgresql_put_statement_timeout(struct postgresql_protocol *protocol, bool takes);

// Sends a simple Query, whose answer is the next one. Returns nil; or the error with which the server ended the session
// before the Query.
VALUE postgresql_ask_text(struct db_exchange *exchange, struct pg_span sql);

// ---- interrupted.c

// Reads the rest of a reply that nobody waits for any more. Returns its error, or nil.
VALUE postgresql_drop_reply(struct postgresql_protocol *protocol);

// ---- sql.c

// A statement's text as a frozen String in UTF-8 or binary. Raises TypeError, EncodingError.
VALUE postgresql_sql_string(VALUE sql);

// The statement's text as the server has it, with $1 in place of ?, and how many parameters it has. May return the
// caller's own String: freeze a copy to keep it beyond the next call of Ruby code.
VALUE postgresql_native_sql(struct postgresql_protocol *protocol, VALUE sql, uint32_t *parameters);

// Whether the text is of the kind :plain (Heddle::DB::Driver#kind). False also for a String that has to be converted.
bool postgresql_is_plain(VALUE self, VALUE sql);

// Whether a statement may share a transaction with the query in front of it that sets its timeout. Not one that
// PostgreSQL wants to be the first of its transaction (LOCK, SET TRANSACTION), or alone in it (VACUUM).
bool postgresql_takes_statement_timeout(struct postgresql_protocol *protocol, VALUE sql);

// Returns a TransactionError if `sql`, the last statement, was a commit that the server answered with ROLLBACK, or nil.
VALUE postgresql_undone(struct postgresql_protocol *protocol, VALUE sql);

// ---- init.c calls these

void postgresql_login_define(void);
void postgresql_parameters_define(void);
void postgresql_columns_define(void);
void postgresql_values_define(void);
void postgresql_results_define(void);
void postgresql_sql_define(void);
void postgresql_copy_define(void);
void postgresql_pipeline_define(void);
void postgresql_interrupted_define(void);
void postgresql_statement_timeout_define(void);
void postgresql_multiplexed_define(void);

// Looks up the classes of Ruby that values are made of, once they are loaded.
void postgresql_parameters_load_classes(void);
void postgresql_values_load_classes(void);
void postgresql_results_load_classes(void);

#endif
