// Methods in C for classes of Net::HTTP, installed by lib/heddle/net_http.
#ifndef HEDDLE_NET_HTTP_NET_HTTP_METHODS_H
#define HEDDLE_NET_HTTP_NET_HTTP_METHODS_H

#include "net_http/net_http_io.h"

// The singleton methods of Heddle::NetHTTP::Library that define these methods.
void net_http_methods_define(VALUE library_class);

// Each defines its methods on the given module.
void net_http_buffered_define(VALUE shadow);
void net_http_head_define(VALUE singleton_of_response);
void net_http_body_define(VALUE response);
void net_http_request_define(VALUE request);
void net_http_transport_define(VALUE http);

// These define singleton methods of Heddle::NetHTTP::Transporting, Connecting and KeepAlive.
void net_http_transport_init(VALUE transporting);
void net_http_connect_init(VALUE connecting);
void net_http_kept_init(VALUE keep_alive);
void net_http_session_init(VALUE keep_alive);
void net_http_exchange_init(VALUE keep_alive);
void net_http_places_init(VALUE keep_alive);

RBIMPL_ATTR_NORETURN()
void net_http_raise_eof(void);

// Raises the library's error for the line in @rbuf, which is longer than the limit. Consumes nothing.
RBIMPL_ATTR_NORETURN()
void net_http_raise_long_line(const struct net_http_io *io, size_t limit);

// Calls the method that the running one replaced (lib/heddle/net_http/replacing.rb), with its block. `id`:
// NAME_without_heddle.
VALUE net_http_call_original(VALUE self, ID id, int argc, const VALUE *argv, int keywords);

// A frozen String that is never freed.
VALUE net_http_constant(const char *text);

#endif
