// Records of TLS, by the methods of the SSLSocket.
#ifndef HEDDLE_NET_HTTP_NET_HTTP_TLS_H
#define HEDDLE_NET_HTTP_NET_HTTP_TLS_H

#include "net_http/net_http_io.h"

// The next record, or part of it, as SSLSocket gives it: nil at the end of the file. `buffer`, if it is not nil,
// becomes the String that is returned; SSLSocket empties it in any case.
VALUE net_http_tls_receive(struct net_http_io *io, size_t most, VALUE buffer);

// Sends what SSLSocket takes of the String; how many bytes that was.
VALUE net_http_tls_send(const struct net_http_io *io, VALUE string);

// The events of poll(2) that either has to wait for; 0 where what it gave is no such thing.
short net_http_tls_awaited(VALUE got);

#endif
