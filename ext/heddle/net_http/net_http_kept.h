// Notes for lib/heddle/net_http/keep_alive, which keeps connections for later sessions.
#ifndef HEDDLE_NET_HTTP_NET_HTTP_KEPT_H
#define HEDDLE_NET_HTTP_NET_HTTP_KEPT_H

#include <ruby.h>

// The first line of an answer has been read from this BufferedIO.
void net_http_kept_answered(VALUE socket);

// A program has called begin_transport of this Net::HTTP itself, and may have several requests in flight.
void net_http_kept_begun_elsewhere(VALUE http);

// The KeepAlive::Connection of this Net::HTTP, if its connection may be kept; or nil.
VALUE net_http_kept_connection(VALUE http);

// The exchange on this BufferedIO has ended well: until then its connection may be kept. Monotonic seconds.
void net_http_kept_rest(VALUE socket, double until);

#endif
