// Shared by the files of this layer: client.c (the object, its ring), server.c (the connections to a server and their
// leases), messages.c (a request and its reply), connection.c (exchanges on one connection: connection.h), exchange.c
// (one key: ask, read, retry), single.c (methods for one key), multi.c, shard.c and batch.c (many keys on all servers
// at once: multi.h), text.c (commands of the text protocol).
#ifndef HEDDLE_MEMCACHED_MEMCACHED_H
#define HEDDLE_MEMCACHED_MEMCACHED_H

#include "stream/line.h"
#include "stream/stream.h"
#include "sync/resource_pool.h"
#include "wire/memcached/messages.h"

// ---- server.c: Heddle::Memcached::Server, the connections to one server. Each is lent to one user at a time, or to
// single-key exchanges of several tasks.

struct memcached_connection;

struct memcached_server {
    struct resource_pool pool;                        // first; of streams
    int64_t connect_span;                             // nanoseconds to connect, if less than the exchange's time
    uint32_t opaque;                                  // of the last request
    bool troubled;                                    // the last exchange failed: see lib/heddle/memcached/server.rb
    struct memcached_connection *connections, *spare; // of exchanges, and records for reuse
    unsigned forks;                                   // of the process whose connections these are
    bool encrypted;                                   // by TLS
    bool crowded;                                     // exchanges wait for others, or share their connections
    bool abandoned; // a probe of whether the server is up again has ended without an answer
};

struct lease {
    struct resource_lease held; // first; its pool is the server's
    bool had;                   // got a permit: a later failure then says something about the server
    deadline_t limit;           // the server's time limit for the current step: connecting, or the rest of the exchange
};

// A lease that has not begun.
static inline struct lease memcached_lease_of(struct memcached_server *server)
{
    return (struct lease){.held = {.pool = &server->pool, .resource.object = Qnil}};
}

static inline struct memcached_server *memcached_lease_server(const struct lease *lease)
{
    return (struct memcached_server *)lease->held.pool; // its first member
}

// The stream that is lent, or nil.
static inline VALUE memcached_lease_stream(const struct lease *lease)
{
    return lease->held.resource.object;
}

struct memcached_server *memcached_server_of(VALUE object);

// The same server; perhaps in a child of a fork that was made meanwhile.
struct memcached_server *memcached_server_now(struct memcached_server *server);

// Lends a connection. Opens one if none is idle and the limit allows it, otherwise waits for one, no longer than until
// `limit`; all of that until `until`. `proven`: check the connection first, because the request must not be sent twice.
// Always call memcached_lease_end afterwards.
void memcached_lease_begin(struct lease *lease, deadline_t limit, deadline_t until, bool proven);

// Raises: no connection became free in time.
RBIMPL_ATTR_NORETURN()
void memcached_refuse_late(const struct memcached_server *server);

// Returns whether an exception was raised into a wait of the connection. Call it before the lease ends.
bool memcached_lease_interrupted(const struct lease *lease);

// Gives the connection back, or closes it if the exchange is out of sync (`in_sync` is false). Never waits.
void memcached_lease_end(struct lease *lease, bool in_sync);

// A probe of this server has ended without telling whether the server is up: the next exchange may probe it again.
static inline void memcached_abandoned(struct memcached_server *server)
{
    if (server->troubled) server->abandoned = true;
}

// ---- client.c: Heddle::Memcached

struct ring_point {
    uint32_t value;
    uint32_t server;
};

struct memcached_client {
    VALUE servers; // Array of Heddle::Memcached::Server
    VALUE codec;
    struct ring_point *points; // sorted; empty for a single server
    size_t point_count;
    int64_t span; // nanoseconds that an exchange may take
    VALUE prefix; // of every key, or nil: then #wire_key must be called for each key
};

struct memcached_client *memcached_client_of(VALUE self);

// The key as sent: a String, with its namespace, of valid length. Raises Heddle::Memcached::InvalidKey.
VALUE memcached_wire_key(const struct memcached_client *client, VALUE self, VALUE key);

// The server of the key. Raises Heddle::Memcached::NoServerAvailable.
VALUE memcached_route(const struct memcached_client *client, VALUE self, VALUE wire_key);

// Decodes the bytes of a value. `*allowance` is 0 before the first value of a reply; `allowance` is NULL for a single
// value.
VALUE memcached_decode(const struct memcached_client *client, VALUE bytes, uint32_t flags, VALUE *allowance);

// ---- messages.c

// Writes the request's line for this key to the stream, and the value for SET. Raises InvalidKey before anything is
// written. `*sent` becomes true once something may have been written.
void memcached_ask(struct stream *stream, VALUE stream_object, struct memcached_request *request, VALUE key,
                   VALUE value, bool *sent);

enum { MEMCACHED_UNCOPIED = 32 << 10 }; // a value of this size is sent without a copy, and waits for the socket

// Reads the line of the next reply, which stays in the buffer. For a malformed reply, closes the stream and raises
// ProtocolError.
void memcached_read_reply(struct stream *stream, struct memcached_reply *reply);

// The bytes after a value. Closes the stream and raises ProtocolError for others.
void memcached_check_end(struct stream *stream, const uint8_t *end);

// Consumes the reply's line and its value. Returns the value, or nil.
VALUE memcached_take_value(struct stream *stream, const struct memcached_reply *reply);

// Whether the reply can answer this request. If not, `*what` is what the server has sent.
bool memcached_reply_fits(const struct memcached_request *request, const struct memcached_reply *reply,
                          const char **what);

// Checks the same. Otherwise closes the stream and raises ProtocolError.
void memcached_check_reply(struct stream *stream, const struct memcached_request *request,
                           const struct memcached_reply *reply);

// The exception for an error reply, or nil. `*in_sync`: whether the connection is still in sync. Call it before the
// line is consumed.
VALUE memcached_reply_error(const struct memcached_server *server, const struct memcached_reply *reply, bool *in_sync);

// The reply as a Ruby Array: [bytes or nil, flags, cas, ttl, seconds since the last access, hit before, state]. `state`
// is made of the bits WON, STALE and WAITING.
VALUE memcached_reply_value(const struct memcached_reply *reply, VALUE bytes);

// Returns whether another client is making the value, and there is no old one.
static inline bool memcached_placeholder(const struct memcached_reply *reply)
{
    return reply->value_length == 0 && reply->fields & (MEMCACHED_WON | MEMCACHED_WAITING) &&
           !(reply->fields & MEMCACHED_STALE);
}

// Returns whether the value is stale, and this request has won the right to recache it.
static inline bool memcached_recache_won(const struct memcached_reply *reply)
{
    static const unsigned taken = MEMCACHED_WON | MEMCACHED_STALE;
    return (reply->fields & taken) == taken;
}

RBIMPL_ATTR_NORETURN()
void memcached_protocol_error(struct stream *stream, const char *what);

// ---- exchange.c

struct exchange {
    VALUE self; // the client
    const struct memcached_client *client;
    VALUE key;   // as sent
    VALUE value; // of SET, or nil
    struct memcached_request request;
    bool again; // may be sent twice
    deadline_t until;
    // Output:
    struct memcached_reply reply; // without its text
    VALUE bytes;                  // the value of VA
    VALUE error;                  // for an error reply, or nil
    // While it runs:
    VALUE server;
    struct loop *loop; // of the task, whose exchange may share a connection; or NULL
    struct memcached_connection *connection;
    struct stream_turn turn;
    struct lease lease; // before the connection is open
    unsigned forks;     // of the process in whose books it stands
    bool writing;       // a part of its request was written, perhaps
    bool sent, interrupted;
    bool known; // another exchange has reported the failure of their connection
};

// Sends the request to the key's server, and retries where that may help. Raises every failure, including error
// replies.
void memcached_exchange_run(struct exchange *exchange);

// Returns whether a connection failed. Other exceptions, such as those from other threads, must not be handled here.
bool memcached_is_failure(VALUE error);

// Returns whether the caller caused the failure, not the server: the caller's deadline came first, or a Timeout or
// another thread raised into the exchange. Such a failure says nothing about the server, and must reach the caller
// unchanged. `interrupted`: see memcached_lease_interrupted.
bool memcached_failed_by_caller(const struct lease *lease, bool interrupted, VALUE error);

// Returns whether there is time to retry after this error.
bool memcached_in_time(VALUE error, deadline_t until);

// After an error: returns the server to retry, or raises if a retry cannot help in the time left.
VALUE memcached_recover(VALUE self, VALUE server, VALUE error, VALUE key, bool again);

enum { MEMCACHED_ATTEMPTS = 4 };

// ---- the methods
void memcached_client_define(VALUE klass);
void memcached_server_define(VALUE klass);
void memcached_failure_define(VALUE klass);
void memcached_single_define(VALUE klass);
void memcached_multi_define(VALUE klass);
void memcached_text_define(VALUE klass);
void memcached_messages_define(VALUE klass);

extern VALUE memcached_eInvalidKey, memcached_eProtocolError;

#endif
