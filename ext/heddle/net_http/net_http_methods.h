// Methods in C for classes of Net::HTTP, put where lib/heddle/net_http says.
#ifndef HEDDLE_NET_HTTP_NET_HTTP_METHODS_H
#define HEDDLE_NET_HTTP_NET_HTTP_METHODS_H

#include "net_http/net_http_io.h"

// The singleton methods of Heddle::NetHTTP::Library that define them.
void net_http_methods_define(VALUE library_class);

// In each: what is defined on which module.
void net_http_buffered_define(VALUE shadow);
void net_http_head_define(VALUE singleton_of_response);
void net_http_body_define(VALUE response);
void net_http_request_define(VALUE request);
void net_http_transport_define(VALUE http);
void net_http_connect_define(VALUE library_class);

RBIMPL_ATTR_NORETURN()
void net_http_raise_eof(void);

// What the running method, one of ours in front of a class, goes on to where it does not do the work: super, unless somebody has put a
// method of his own in that place and calls ours because he has kept it (lib/heddle/net_http/aliases.rb).
VALUE net_http_behind(VALUE self, int argc, const VALUE *argv, int keywords);

// A frozen String that is never freed.
VALUE net_http_constant(const char *text);

#endif
