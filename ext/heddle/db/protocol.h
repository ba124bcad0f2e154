// A connection to a database server, as far as all databases have it in common: a protocol, which runs one exchange at
// a time on its stream. An exchange sends requests, reads replies, or both. If it is left before its end, the
// connection is out of step with its server, and its stream is closed. After a wait that stream_set_resumable allowed
// for, the stream stays open instead: the connection is interrupted, and refuses all exchanges but the one that reads
// the rest of the reply. In a child of fork, a connection of the parent refuses every exchange.
//
// A layer above embeds struct db_protocol as the first member of its own protocol, and names db_protocol_type as the
// parent of its protocol's type. It runs an exchange so:
//
//     struct server_protocol *protocol = server_protocol_of(exchange->self);
//     db_exchange_begin(exchange, &protocol->base);
//     …                                                    // nothing that raises, or lets other code run
//     VALUE result = db_exchange_run(exchange, ended);
#ifndef HEDDLE_DB_PROTOCOL_H
#define HEDDLE_DB_PROTOCOL_H

#include "heddle.h"

#include "db/pending_closes.h"
#include "os/deadline.h"
#include "db/server_text.h"
#include "references.h"
#include "stream/stream.h"

enum db_protocol_state {
    DB_PROTOCOL_IDLE,
    DB_PROTOCOL_IN_EXCHANGE,
    DB_PROTOCOL_INTERRUPTED // in an exchange, and the rest of its reply can still be read
};

struct db_protocol {
    VALUE stream;
    struct pending_closes *pending_closes;
    int64_t span;       // nanoseconds that an exchange may take
    size_t pending;     // bytes of the message that is being read, in the stream's buffer
    size_t left;        // of a large message that is received apart from the buffer: an interrupted reader leaves some
    uint32_t owed;      // outstanding replies
    uint64_t requested; // replies that were ever asked for
    uint32_t closes;    // closes that are queued in the stream, in front of the next request
    unsigned born;      // fork_count() when opened: in a child of fork the connection belongs to the parent
    enum db_protocol_state state;
    bool shared;         // statements of several tasks are in flight: see multiplexer.c
    bool owes_to_nobody; // … were, and the outstanding replies are those of tasks that have left
};

extern VALUE db_cProtocol; // Heddle::DB::Protocol
extern const rb_data_type_t db_protocol_type;

struct db_protocol *db_protocol_of(VALUE self);

// From now on an exchange that is left before its end harms nobody but its caller: the stream stays open if it can, and
// whoever reads next drops the rest of the reply.
void db_protocol_share(VALUE self, bool shared);

// The last exchange of a shared connection was left, and no other is to come but the one that reads the rest of its
// reply. Does nothing if there are more replies, or unsent bytes.
void db_protocol_interrupt(VALUE self);

// For the functions of a layer's type and for its allocator, which calls db_protocol_init for zeroed memory.
void db_protocol_init(struct db_protocol *protocol);
void db_protocol_references(struct db_protocol *protocol, reference_function *each);
void db_protocol_release(struct db_protocol *protocol);

// From now on the connection uses that stream. Raises TypeError for another object, IOError for a closed stream.
void db_protocol_open(struct db_protocol *protocol, VALUE stream);

// Returns whether the connection belongs to the process that this one was forked from.
bool db_protocol_forked(const struct db_protocol *protocol);

// For a layer's struct db_operations. A connection of the parent process is closed here.
bool db_protocol_is_forked(VALUE protocol);
bool db_protocol_is_closed(VALUE protocol);

// Raises Heddle::DB::ConnectionLost in a child of fork, if the connection is the parent's. Call this before a request
// is sent: Ruby code that made the request's values may have forked.
void db_protocol_check_process(struct db_protocol *protocol);

// The server has closed all statements.
void db_protocol_forget_statements(struct db_protocol *protocol);

// Closes the stream, and raises Heddle::DB::ConnectionLost, if replies to earlier requests are outstanding: a program
// would take them for the reply to its next request. Call this before a request whose reply is the next one.
void db_protocol_check_answered(struct db_protocol *protocol);

// Requests were appended to the stream, behind the closes that were queued: the server owes so many more replies.
void db_protocol_requested(struct db_protocol *protocol, struct stream *stream, uint32_t replies);

// A reply was read to its end.
void db_protocol_replied(struct db_protocol *protocol, struct stream *stream);

// Consumes the message that was being read, if there is one, from the connection's stream.
void db_protocol_consume(struct db_protocol *protocol, struct stream *stream);

// Receives a large message into a String of its own: otherwise the stream's buffer would have to grow, and values would
// be copied out of it. Of a shared connection in pieces, so that whoever reads next can skip the rest.
VALUE db_protocol_take(struct db_protocol *protocol, struct stream *stream, size_t length);

// Receives what is left of a large message, appending it to `bytes` unless that is nil.
void db_protocol_take_left(struct db_protocol *protocol, struct stream *stream, VALUE bytes);

// Closes the stream, and raises Heddle::DB::ProtocolError.
RBIMPL_ATTR_NORETURN()
void db_protocol_violated(struct db_protocol *protocol, const char *what);

struct db_exchange {
    VALUE self;
    void *protocol; // the layer's own, whose first member is a struct db_protocol
    VALUE (*body)(struct db_exchange *exchange);
    VALUE arguments[4];
    uint32_t number;
    bool unsent;  // nothing was sent yet: what the body raises leaves the connection as it was
    bool resumes; // reads the rest of an interrupted reply
    bool unasked; // no answer is waited for
    // of protocol.c
    bool bounded, complete;
    deadline_t before, until; // limits: around the exchange; its own, for what belongs to it and comes behind it
    void (*ended)(struct db_exchange *exchange);
};

// Takes the connection for an exchange, and applies its timeout. Raises Heddle::DB::ConnectionLost in a child of fork,
// Heddle::DB::Busy in the middle of another exchange, IOError for a closed stream; and for a request whose answer could
// not be waited for, since a deadline has passed, what that wait would raise: the server must not execute a statement
// of which nobody learns the result.
void db_exchange_begin(struct db_exchange *exchange, struct db_protocol *protocol);

// Runs the body. If it does not complete, the stream is closed, unless the exchange says `unsent`. `ended` is called
// then, or after the body, and may not raise.
VALUE db_exchange_run(struct db_exchange *exchange, void (*ended)(struct db_exchange *exchange));

#endif
