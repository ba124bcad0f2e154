// Defines the methods in C of Net::HTTP's classes, which lib/heddle/net_http installs, and those of
// Heddle::NetHTTP: the only file of this layer that knows all others.
#include "net_http/names.h"

#include "heddle.h"

// Each defines its methods on a module that replaces methods of Net::HTTP's classes.
#define SUBJECTS(name) name(buffered) name(head) name(body) name(request) name(transport)

// Nothing else calls these functions: no header declares them.
#define DEFINER(name) void net_http_##name##_define(VALUE module);
SUBJECTS(DEFINER)
void net_http_names_init(void);
void net_http_tls_init(void);
void net_http_library_init(VALUE library);
void net_http_transport_init(VALUE transport_request);
void net_http_connect_init(VALUE connect);
void net_http_key_init(VALUE key);
void net_http_connection_init(VALUE keep_alive);
void net_http_keep_alive_init(VALUE keep_alive);
void net_http_session_init(VALUE keep_alive);
void net_http_exchange_init(VALUE keep_alive);
void net_http_keyed_table_init(VALUE keep_alive);

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
    net_http_names_init();
    net_http_tls_init();
    VALUE net_http = rb_define_module_under(heddle_module, "NetHTTP");
    VALUE library = rb_define_class_under(net_http, "Library", rb_cObject);
    VALUE transport_request = rb_define_module_under(net_http, "TransportRequest");
    VALUE connect = rb_define_module_under(net_http, "Connect");
    VALUE keep_alive = rb_define_module_under(net_http, "KeepAlive");
    VALUE key = rb_define_class_under(keep_alive, "Key", rb_cObject);
    rb_define_singleton_method(library, "define", define_subject, 2);
    net_http_library_init(library);
    rb_ext_ractor_safe(true);
    net_http_transport_init(transport_request);
    net_http_connect_init(connect);
    net_http_key_init(key);
    net_http_connection_init(keep_alive); // before what looks its class up
    net_http_keep_alive_init(keep_alive);
    net_http_session_init(keep_alive);
    net_http_exchange_init(keep_alive);
    net_http_keyed_table_init(keep_alive);
    rb_ext_ractor_safe(false);
}
