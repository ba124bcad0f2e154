// Methods in C for classes of Net::HTTP, put where lib/heddle/net_http says.
#ifndef HEDDLE_NET_HTTP_METHODS_H
#define HEDDLE_NET_HTTP_METHODS_H

#include "net_http/http_io.h"

// The singleton methods of Heddle::NetHTTP::Flavour that define them.
void http_methods_define(VALUE flavour_class);

// In each: what is defined on which module.
void http_buffered_define(VALUE shadow);
void http_head_define(VALUE singleton_of_response);
void http_body_define(VALUE response);
void http_request_define(VALUE request);
void http_transport_define(VALUE http);
void http_connect_define(VALUE flavour_class);

RBIMPL_ATTR_NORETURN()
void http_raise_eof(void);

// What the running method, one of ours in front of a class, goes on to where it does not do the work: super, unless somebody has put a
// method of his own in that place and calls ours because he has kept it (lib/heddle/net_http/aliases.rb).
VALUE http_behind(VALUE self, int argc, const VALUE *argv, int keywords);

// A frozen String that is never freed.
VALUE http_constant(const char *text);

#endif
