// A connection to a MySQL or MariaDB server, on a Heddle::Stream: what the files of this folder share. mysql_link.c has
// the packets, mysql_parameters.c and mysql_values.c what goes in and comes out, mysql_results.c whole replies,
// mysql_text.c text for messages, mysql_login.c and mysql_commands.c the methods of Heddle::DB::MySQL::Link, mysql_idle.c the closes that no request takes
// along. What is asked when is decided in Ruby (lib/heddle/db).
#ifndef HEDDLE_MYSQL_MYSQL_LINK_H
#define HEDDLE_MYSQL_MYSQL_LINK_H

#include "heddle.h"

#include "deadline.h"
#include "stream/stream.h"
#include "wire/wire_mysql_rows.h"

#include <ruby/encoding.h>

enum {
    MYSQL_IN_FLIGHT = 256,    // replies that may be owed at once
    MYSQL_CLOSES_WAITING = 64 // statements closed by us and not yet by the server
};

// The server's name for the statement that was prepared last; MariaDB alone.
#define MYSQL_LAST_STATEMENT UINT32_C(0xffffffff)

// Bytes that grow, used again and again.
struct mysql_bytes {
    uint8_t *at;
    size_t length, capacity;
};

// Statements that nobody holds any more, waiting for their close to be sent. The connection and each of its statements
// have it: either may be freed first. Freeing only happens with the GVL held.
struct mysql_pending_closes {
    uint32_t references;
    bool dead; // the connection is gone, and the statements with it
    uint32_t *ids;
    uint32_t count, capacity;
};

struct mysql_link {
    VALUE stream;
    // The packet that is being looked at, if it is not in the stream's buffer: a large one, or several joined.
    VALUE apart;
    struct mysql_bytes request;
    struct mysql_bytes row; // a copy of one, for values that Ruby code makes
    struct mysql_pending_closes *pending_closes;
    uint64_t capabilities;
    int64_t span;                    // nanoseconds an operation may take
    size_t pending;                  // bytes of the packet that is being looked at
    uint8_t starts[MYSQL_IN_FLIGHT]; // with which number each of the replies that are owed begins
    uint32_t first, owed;
    uint32_t closes; // ride already
    uint32_t last;   // the statement that was prepared last
    bool last_open;  // … and was not closed
    unsigned born;   // in which process it was opened: in a child of fork the connection is the parent's
    uint16_t status;
    uint16_t settled; // what of it holds for the session, once it is set up
    bool changed;     // the server said that something in the session has changed since
    uint8_t sequence;
    bool busy;  // in an exchange
    bool whole; // `apart` has no more memory than its bytes take
    // Of mysql_idle.c: whether it watches, since when nothing was asked, and by which count.
    bool watched;
    deadline_t idle_since;
    uint64_t exchanges, seen;
    bool local;    // DATETIME is in the time zone of this process, not in UTC
    bool booleans; // TINYINT(1) is true or false
    bool direct;   // the server takes a prepare and its execution together: MariaDB since 10.2
    rb_encoding *encoding;
};

extern VALUE mysql_cLink, mysql_cColumns, mysql_cPrepared;

struct mysql_link *mysql_link_of(VALUE self);

// ---- mysql_link.c: packets

void mysql_bytes_reserve(struct mysql_bytes *bytes, size_t room);
void mysql_bytes_append(struct mysql_bytes *bytes, const void *from, size_t length);

struct mysql_exchange {
    VALUE self;
    struct mysql_link *link;
    VALUE (*body)(struct mysql_exchange *);
    VALUE arguments[4];
    uint32_t number;
    deadline_t before;
    bool bounded, complete, gives;
};

// Runs the body as one exchange: nobody else may talk meanwhile, it has the link's time, and when it is left before its end
// the stream is closed, unless it `gives` and got no further than to build its request.
VALUE mysql_exchange(struct mysql_exchange *exchange);

// Whether it is the connection of the process that this one was forked from.
bool mysql_forked(const struct mysql_link *link);

// Closes its socket in this process, without a word to the server.
void mysql_leave(struct mysql_link *link);

// One with two arguments.
VALUE mysql_exchange_with(VALUE self, VALUE (*body)(struct mysql_exchange *), VALUE first, VALUE second);

// The payload of the next packet; good until the next call.
struct mysql_span mysql_packet(struct mysql_link *link);

// Begins to read the oldest reply that is owed, and ends it.
void mysql_reply_begin(struct mysql_link *link);
void mysql_reply_end(struct mysql_link *link);

// Appends a request of one command byte and two pieces. One reply more is owed then. Sent by the next read.
void mysql_ask(struct mysql_link *link, uint8_t command, const void *bytes, size_t length);

// The closes of statements that nobody holds any more, ahead of whatever is asked next.
void mysql_send_pending_closes(struct mysql_link *link);

// The same of what mysql_build_execute has put into link->request.
void mysql_ask_built(struct mysql_link *link);

// The close of a statement rides with the next request.
void mysql_close_later(struct mysql_link *link, uint32_t id);
void mysql_close_pending(struct mysql_pending_closes *pending_closes, uint32_t id);
void mysql_pending_closes_release(struct mysql_pending_closes *pending_closes);

// Closes the stream, and raises Heddle::DB::ProtocolError.
RBIMPL_ATTR_NORETURN()
void mysql_violated(struct mysql_link *link, const char *what);

// ---- mysql_parameters.c

// COM_STMT_EXECUTE into link->request. Runs Ruby code; raises TypeError, ArgumentError.
void mysql_build_execute(struct mysql_link *link, uint32_t id, VALUE arguments, bool cursor);

// ---- mysql_values.c

struct mysql_columns {
    VALUE names;            // nil until asked for
    rb_encoding *described; // the encoding of names in the definitions
    uint32_t count;
    bool copies;                    // there are values that Ruby code makes
    bool fresh;                     // no Ruby code has it yet: may be defined anew
    struct mysql_bytes definitions; // packets, each behind its length
    struct mysql_field *fields;     // behind encodings, in the same memory
    int encodings[];                // their indexes
};

struct mysql_columns *mysql_columns_of(VALUE columns);
VALUE mysql_columns_new(uint32_t count);

// Those given, to be defined anew, if they are fresh and so many; otherwise new ones. nil: there are none.
VALUE mysql_columns_anew(VALUE columns, uint32_t count);
void mysql_columns_define(struct mysql_link *link, VALUE columns, uint32_t index, struct mysql_span definition);

// An Array of the row's values. Runs Ruby code only for columns that say `copies`. Keep the columns' object on the stack.
VALUE mysql_row_values(struct mysql_link *link, struct mysql_span packet, const struct mysql_columns *columns,
                       bool text);

// ---- mysql_results.c

struct mysql_statement {
    VALUE columns;         // nil for one without a result
    VALUE parameter_types; // as Columns; nil where nobody asked for them, or there are none
    struct mysql_pending_closes *pending_closes;
    uint32_t id;
    uint16_t parameters;
    bool open;
};

struct mysql_statement *mysql_statement_of(VALUE prepared);

// A Heddle::DB::Result with all that follow it; or a Heddle::DB::ServerError, which is not raised. `known` are the columns
// that the server may leave out: those that it sent last for this statement, which it may replace. NULL for none.
VALUE mysql_read_result(struct mysql_link *link, VALUE *known, bool text);

// What a prepare is answered with: 0, or the error. `types` of its parameters are passed over if it is NULL.
VALUE mysql_read_prepared(struct mysql_link *link, struct mysql_prepared *prepared, VALUE *columns, VALUE *types);

// A Prepared that is open.
VALUE mysql_prepared_new(struct mysql_link *link, const struct mysql_prepared *prepared, VALUE columns, VALUE types);

// Rows of a cursor, or the error; sets whether there are more.
VALUE mysql_read_fetched(struct mysql_link *link, VALUE columns);

// An error's object.
VALUE mysql_error_value(struct mysql_link *link, struct mysql_span packet);

// Whether the server closes the connection behind it.
bool mysql_error_is_final(VALUE error);

// ---- mysql_text.c

// What the server said in that encoding, in UTF-8; replaced is what it is not valid there. Of binary: taken for UTF-8.
VALUE mysql_utf8(const char *bytes, size_t length, rb_encoding *encoding);

// The same for messages: without control characters, which are shown as \\xNN.
VALUE mysql_text(const char *bytes, size_t length, rb_encoding *encoding);

// ---- mysql_idle.c

// Has closes that wait sent when nothing is asked for a second.
void mysql_flush_when_idle(VALUE self);

void mysql_idle_init(void);

void mysql_parameters_init(void);
void mysql_values_init(void);
void mysql_results_init(void);
void mysql_login_init(void);
void mysql_commands_init(void);

// Looks up the classes of Ruby that values are made of, once they are loaded.
void mysql_parameters_classes(void);
void mysql_values_classes(void);
void mysql_results_classes(void);

#endif
