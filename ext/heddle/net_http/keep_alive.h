// Interface between the C code of requests and lib/heddle/net_http/keep_alive, which keeps connections for later
// sessions.
#ifndef HEDDLE_NET_HTTP_KEEP_ALIVE_H
#define HEDDLE_NET_HTTP_KEEP_ALIVE_H

#include <ruby.h>
#include <stdbool.h>

extern bool net_http_keeping;           // changed by the main Ractor only
extern double net_http_keep_alive_idle; // seconds that a connection may rest

// Whether connections of this object's library are kept. Never outside of the main Ractor.
bool net_http_keep_alive_is_on(VALUE http);

// Whether a BufferedIO holds bytes that nobody has read.
bool net_http_keep_alive_unread(VALUE buffered);

// Counts for Heddle::NetHTTP.stats.
enum net_http_count {
    NET_HTTP_OPENED,
    NET_HTTP_REUSED,
    NET_HTTP_STALE,
    NET_HTTP_EVICTED,
    NET_HTTP_RESUMED,
    NET_HTTP_COUNTS
};
void net_http_keep_alive_count(enum net_http_count what, uint64_t number);

// ---- exchanges: exchange.c

// A request of this Net::HTTP begins on this BufferedIO, which has that connection.
void net_http_exchange_begin(VALUE http, VALUE connection, VALUE buffered, VALUE request);

// Whether it was just found that nothing has come on this BufferedIO's connection, not even its end. True once.
bool net_http_exchange_looked(VALUE buffered);

// The first line of an answer has been read from this BufferedIO.
void net_http_exchange_answered(VALUE buffered);

// The library has read the body of this response, the last one on this BufferedIO, to its end. A program may tell a
// response that it was read though it was not: the gem down does so.
void net_http_exchange_read(VALUE buffered, VALUE response);

// A request on this connection has ended in any way.
void net_http_exchange_ended(VALUE connection);

#endif
