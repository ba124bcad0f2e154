// TLS records, through SSLSocket's methods.
#ifndef HEDDLE_NET_HTTP_TLS_H
#define HEDDLE_NET_HTTP_TLS_H

#include "net_http/io.h"

// Reads the next record, or part of it; nil at the end of the file. A `buffer` that is not nil becomes the returned
// String; SSLSocket empties it in any case.
VALUE net_http_tls_receive(struct net_http_io *io, size_t most, VALUE buffer);

// Sends as much of the String as SSLSocket takes. Returns the number of bytes.
VALUE net_http_tls_send(const struct net_http_io *io, VALUE string);

// The events of poll(2) that a result of these functions asks to wait for; 0 for any other result.
short net_http_tls_awaited(VALUE got);

#endif
