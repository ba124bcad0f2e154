// What the files of the client share among themselves: memcached_client.c (the object, its ring), memcached_server.c
// (connections and who has them), memcached_messages.c (a request and its reply), memcached_exchange.c (one key: lease,
// ask, try again), memcached_single.c (methods of one key), memcached_multi.c, memcached_shard.c and memcached_batch.c (many keys,
// all servers at once: multi.h), memcached_text.c (what servers say of themselves).
#ifndef HEDDLE_MEMCACHED_INTERNALS_H
#define HEDDLE_MEMCACHED_INTERNALS_H

#include "memcached/bindings.h"
#include "stream/stream.h"
#include "wire/wire_memcached.h"

// ---- memcached_server.c: Heddle::Memcached::Server, the connections to one server. They are lent, never shared.

struct memcached_server {
    VALUE self;
    VALUE idle;           // streams that nobody has; the last given back is the first to go
    VALUE waiters;        // Hash of those who wait for one by their numbers, the longest first
    uint64_t turns;       // numbers that were given to waiters
    int64_t turn_span;    // nanoseconds that this may take, if that is less than the exchange's time
    int64_t connect_span; // nanoseconds that connecting may take, the same
    unsigned open;        // connections and permits to make one
    unsigned limit;       // … at most
    unsigned generation;  // connections of an earlier one are not used again
    unsigned forks;       // of the process that they belong to
    uint32_t opaque;      // of the next request
    bool troubled;        // the last exchange failed: lib/heddle/memcached/server.rb knows more
    bool abandoned;       // an operation that was to show whether the server is up again has ended without an answer
    bool closed;
};

struct lease {
    struct memcached_server *server;
    VALUE stream; // or nil
    unsigned generation, forks;
    bool counted;     // among the server's open ones
    bool had;         // there was one, or a permit: what fails then says something of the server
    deadline_t limit; // until when the server may take for the current step: connecting, or the rest of the exchange
};

struct memcached_server *memcached_server_of(VALUE object);

// Lends a connection, and makes one if none is idle and the limit allows, else waits for one, all of it until `until`.
// `proven`: the connection is looked at first, for what is asked must not be asked twice. Whatever comes of it, the lease is
// to be ended.
void memcached_lease_begin(struct lease *lease, VALUE server, deadline_t until, bool proven);

// Whether something was raised into a wait of the connection. To be asked before the lease is ended.
bool memcached_lease_interrupted(const struct lease *lease);

// Gives the connection back, or closes it if the exchange is out of sync (`sound` is false). Never raises, never waits.
void memcached_lease_end(struct lease *lease, bool sound);

// An exchange on this server has ended, and it is not known whether the server is up: the next one may find out.
static inline void memcached_abandoned(struct memcached_server *server)
{
    if (server->troubled) server->abandoned = true;
}

// ---- memcached_client.c: Heddle::Memcached

struct ring_point {
    uint32_t value;
    uint32_t server;
};

struct memcached_client {
    VALUE servers; // Array of Heddle::Memcached::Server
    VALUE codec;
    struct ring_point *points; // sorted; none for a single server
    size_t point_count;
    int64_t span; // nanoseconds that an exchange may take
    VALUE prefix; // of every key, or nil: it has to be asked for each time
};

struct memcached_client *memcached_client_of(VALUE self);

// The key as it is sent: a String, with its namespace and not too long. Raises Heddle::Memcached::InvalidKey.
VALUE memcached_wire_key(const struct memcached_client *client, VALUE self, VALUE key);

// The server that has the key. Raises Heddle::Memcached::NoServerAvailable.
VALUE memcached_route(const struct memcached_client *client, VALUE self, VALUE wire_key);

// The object that the bytes of a value stand for. `*allowance` is 0 before the first of a reply's values; NULL for a single one.
VALUE memcached_decode(const struct memcached_client *client, VALUE bytes, uint32_t flags, VALUE *allowance);

// ---- memcached_messages.c

// Puts the line of the request for this key into what will be sent, and the value if it is SET. Raises InvalidKey before
// anything is put. `*sent` becomes true once something may have been.
void memcached_ask(struct stream *stream, VALUE stream_object, struct memcached_request *request, VALUE key,
                   VALUE value, bool *sent);

// Reads the line of the next reply, which stays in the buffer. Closes the stream and raises ProtocolError for nonsense.
void memcached_read_reply(struct stream *stream, struct memcached_reply *reply);

// Takes the line, and the value behind it, or nil.
VALUE memcached_take_value(struct stream *stream, const struct memcached_reply *reply);

// The reply to this request: whether it is one. Otherwise closes the stream and raises ProtocolError.
void memcached_check_reply(struct stream *stream, const struct memcached_request *request,
                           const struct memcached_reply *reply);

// The exception for a reply that is an error, or nil. `*sound`: the connection is in step after it. To be called before the
// line is taken.
VALUE memcached_reply_error(const struct memcached_server *server, const struct memcached_reply *reply, bool *sound);

// What it says of the item, in Ruby: [bytes or nil, flags, cas, ttl, seconds since the last access, hit before, state].
// `state` is made of the bits WON, STALE and WAITING.
VALUE memcached_reply_value(const struct memcached_reply *reply, VALUE bytes);

// Somebody else is making the value, and there is no old one.
static inline bool memcached_placeholder(const struct memcached_reply *reply)
{
    return reply->value_length == 0 && reply->fields & (MEMCACHED_WON | MEMCACHED_WAITING) &&
           !(reply->fields & MEMCACHED_STALE);
}

// It is stale, and who asked has got the right to make it anew.
static inline bool memcached_taken(const struct memcached_reply *reply)
{
    static const unsigned taken = MEMCACHED_WON | MEMCACHED_STALE;
    return (reply->fields & taken) == taken;
}

RBIMPL_ATTR_NORETURN()
void memcached_nonsense(struct stream *stream, const char *what);

// ---- memcached_exchange.c

struct exchange {
    VALUE self; // the client
    const struct memcached_client *client;
    VALUE key;   // as it is sent
    VALUE value; // of SET, or nil
    struct memcached_request request;
    bool again; // it may be sent twice
    deadline_t until;
    // What came of it:
    struct memcached_reply reply; // but for its text
    VALUE bytes;                  // the value of VA
    VALUE error;                  // of a reply that is an error, or nil
    // While it runs:
    VALUE server;
    struct lease lease;
    bool sent, sound, interrupted;
};

// Asks the server that has the key, and again where that may help; raises what went wrong, errors in replies too.
void memcached_exchange_run(struct exchange *exchange);

// Whether it is a connection that failed. All else, such as what other threads raise in this one, is not for us to answer.
bool memcached_is_failure(VALUE error);

// Whether a failure is the caller's doing, not the server's: its deadline came first, or the exception was raised into the
// exchange by a Timeout or another thread. It says nothing of the server, and must reach the caller as it is.
// `interrupted`: see memcached_lease_interrupted.
bool memcached_callers_doing(const struct lease *lease, bool interrupted, VALUE error);

// Whether there is time to try again after it.
bool memcached_in_time(VALUE error, deadline_t until);

// After an error: whether trying again may help, with what is left of the time. Returns the server to try, raises otherwise.
VALUE memcached_recover(VALUE self, VALUE server, VALUE error, VALUE key, bool again);

enum { MEMCACHED_ATTEMPTS = 4 };

// ---- the methods
void memcached_define_server(VALUE klass);
void memcached_define_single(VALUE klass);
void memcached_define_multi(VALUE klass);
void memcached_define_text(VALUE klass);
void memcached_messages_init(VALUE klass);

extern VALUE memcached_eInvalidKey, memcached_eProtocolError;

#endif
