// Defines the methods in C of Net::HTTP's classes, which lib/heddle/net_http installs, and those of
// Heddle::NetHTTP: the only file of this layer that knows all others.
#include "net_http/names.h"

#include "heddle.h"

// Each defines its methods on a module that replaces methods of Net::HTTP's classes.
#define SUBJECTS(name) name(buffered) name(head) name(body) name(request) name(transport)

// Nothing else calls these functions: no header declares them.
#define DEFINER(name) void net_http_##name##_define(VALUE module);
SUBJECTS(DEFINER)
void net_http_names_define(void);
void net_http_tls_define(void);
void net_http_library_define(VALUE library);
void net_http_transport_request_define(VALUE transport_request);
void net_http_connect_define(VALUE connect);
void net_http_key_define(VALUE key);
void net_http_connection_define(VALUE keep_alive);
void net_http_keep_alive_define(VALUE keep_alive);
void net_http_session_define(VALUE keep_alive);
void net_http_exchange_define(VALUE keep_alive);
void net_http_keyed_table_define(VALUE keep_alive);

/*
 * @api private Library.define(subject, module) -> module
 *
 * Every Ractor may use Net::HTTP: outside the main Ractor there is no library (net_http/library.c), so that the methods
 * call the originals.
 */
static VALUE define_subject(VALUE self, VALUE subject, VALUE module)
{
    (void)self;
    rb_ext_ractor_safe(true);
#define DEFINE(name) \
    if (rb_sym2id(subject) == rb_intern(#name)) net_http_##name##_define(module);
    SUBJECTS(DEFINE)
    rb_ext_ractor_safe(false);
    return module;
}

void Init_heddle_net_http(void)
{
    net_http_names_define();
    net_http_tls_define();
    VALUE net_http = rb_define_module_under(heddle_module, "NetHTTP");
    VALUE library = rb_define_class_under(net_http, "Library", rb_cObject);
    VALUE transport_request = rb_define_module_under(net_http, "TransportRequest");
    VALUE connect = rb_define_module_under(net_http, "Connect");
    VALUE keep_alive = rb_define_module_under(net_http, "KeepAlive");
    VALUE key = rb_define_class_under(keep_alive, "Key", rb_cObject);
    rb_define_singleton_method(library, "define", define_subject, 2);
    net_http_library_define(library);
    rb_ext_ractor_safe(true);
    net_http_transport_request_define(transport_request);
    net_http_connect_define(connect);
    net_http_key_define(key);
    net_http_connection_define(keep_alive); // before what looks its class up
    net_http_keep_alive_define(keep_alive);
    net_http_session_define(keep_alive);
    net_http_exchange_define(keep_alive);
    net_http_keyed_table_define(keep_alive);
    rb_ext_ractor_safe(false);
}
