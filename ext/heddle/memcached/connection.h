// A connection of a server, lent by its pool to one exchange, or to those of several tasks of a loop: see
// doc/adr/0051-operations-share-connections-of-memcached.md.
#ifndef HEDDLE_MEMCACHED_CONNECTION_H
#define HEDDLE_MEMCACHED_CONNECTION_H

#include "memcached/memcached.h"
#include "stream/line.h"

struct memcached_connection {
    struct memcached_connection *next; // of the server's
    struct memcached_server *server;
    struct loop *loop;          // whose tasks share it; NULL: one exchange has it alone
    struct lease lease;         // once it is open
    struct stream *stream;      // … the lease's
    struct stream_turns coming; // of those who wait until it is open
    struct stream_line line;
    struct exchange *opener; // waits for the pool
    size_t rest;             // bytes of a value that was given up while it was read
    long places;             // exchanges that are here, in either line or between them
    bool open;
    bool proof_wanted; // it must be checked before it is used …
    bool proven;       // … or has answered since
    bool full;         // takes no more exchanges
    bool failed;       // one of its exchanges has reported its failure
};

// Gives the exchange a place on a connection that is open: one of its own, if the pool has one to lend, or else one
// that others use, if the exchange may share. Waits as memcached_lease_begin does, and raises what that does.
void memcached_connection_enter(struct exchange *exchange);

// Gives the place back, and with the last one the connection to the pool, which may raise: at its end.
void memcached_connection_leave(struct exchange *exchange);

static inline VALUE memcached_connection_object(const struct memcached_connection *connection)
{
    return memcached_lease_stream(&connection->lease);
}

// Whether the connection of an exchange is open, but its stream was closed.
static inline bool memcached_connection_lost(const struct memcached_connection *connection)
{
    return connection->open && stream_is_closed(memcached_connection_object(connection));
}

#endif
