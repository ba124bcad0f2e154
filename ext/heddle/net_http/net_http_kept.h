// Notes for lib/heddle/net_http/keep_alive, which keeps connections for later sessions.
#ifndef HEDDLE_NET_HTTP_NET_HTTP_KEPT_H
#define HEDDLE_NET_HTTP_NET_HTTP_KEPT_H

#include <ruby.h>
#include <stdbool.h>

extern double net_http_kept_idle; // seconds that a connection may rest

// The first line of an answer has been read from this BufferedIO.
void net_http_kept_answered(VALUE socket);

// The library has read the body of this response, the last one on this BufferedIO, to its end. A program may tell a
// response that it was read though it was not: the gem down does so.
void net_http_kept_read(VALUE socket, VALUE response);
bool net_http_kept_whole(VALUE http, VALUE response);

// A program has called begin_transport of this Net::HTTP itself, and may have several requests in flight.
void net_http_kept_begun_elsewhere(VALUE http);

// Whether it was just found that nothing has come on this BufferedIO's connection, not even its end. True once.
bool net_http_kept_looked(VALUE socket);

// A request on this connection, which may be nil, has ended in any way.
void net_http_kept_transported(VALUE connection);

// Whether a request, whose class is as shipped, may be sent twice.
bool net_http_exchange_idempotent(VALUE request);

// The KeepAlive::Connection of this Net::HTTP, if its connection may be kept; or nil.
VALUE net_http_kept_connection(VALUE http);

// The exchange on this BufferedIO has ended well: until then its connection may be kept. Monotonic seconds.
void net_http_kept_rest(VALUE socket, double until);

#endif
