#include "net_http/net_http_methods.h"

#include "net_http/bindings.h"
#include "net_http/net_http_connection.h"
#include "net_http/net_http_tls.h"

VALUE net_http_call_original(VALUE self, ID id, int argc, const VALUE *argv, int keywords)
{
    if (!rb_block_given_p()) return rb_funcallv_kw(self, id, argc, argv, keywords);
    return rb_block_call_kw(self, id, argc, argv, rb_yield_block, Qnil, keywords);
}

VALUE net_http_constant(const char *text)
{
    VALUE string = rb_interned_str_cstr(text);
    rb_gc_register_mark_object(string);
    return string;
}

// Every Ractor may use Net::HTTP: outside the main Ractor there is no library (net_http_library.c), so that the methods
// call the originals.
#define DEFINER(subject)                                    \
    static VALUE define_##subject(VALUE self, VALUE module) \
    {                                                       \
        (void)self;                                         \
        rb_ext_ractor_safe(true);                           \
        net_http_##subject##_define(module);                \
        rb_ext_ractor_safe(false);                          \
        return module;                                      \
    }

DEFINER(buffered)
DEFINER(head)
DEFINER(body)
DEFINER(request)
DEFINER(transport)

void net_http_methods_define(VALUE library_class)
{
    rb_define_singleton_method(library_class, "define_buffered", define_buffered, 1);
    rb_define_singleton_method(library_class, "define_head", define_head, 1);
    rb_define_singleton_method(library_class, "define_body", define_body, 1);
    rb_define_singleton_method(library_class, "define_request", define_request, 1);
    rb_define_singleton_method(library_class, "define_transport", define_transport, 1);
}

void Init_heddle_net_http(void)
{
    net_http_names_init();
    VALUE net_http = rb_define_module_under(heddle_module, "NetHTTP");
    Init_heddle_net_http_io();
    Init_heddle_net_http_tls();
    Init_heddle_net_http_library(net_http);
    VALUE transporting = rb_define_module_under(net_http, "Transporting");
    VALUE connecting = rb_define_module_under(net_http, "Connecting");
    VALUE keep_alive = rb_define_module_under(net_http, "KeepAlive");
    rb_ext_ractor_safe(true);
    net_http_transport_init(transporting);
    net_http_connect_init(connecting);
    net_http_connection_init(keep_alive);
    net_http_kept_init(keep_alive);
    net_http_session_init(keep_alive);
    net_http_exchange_init(keep_alive);
    net_http_places_init(keep_alive);
    rb_ext_ractor_safe(false);
}
