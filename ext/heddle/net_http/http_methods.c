#include "net_http/http_methods.h"

#include "net_http/net_http.h"

VALUE http_constant(const char *text)
{
    VALUE string = rb_interned_str_cstr(text);
    rb_gc_register_mark_object(string);
    return string;
}

#define DEFINER(subject)                                    \
    static VALUE define_##subject(VALUE self, VALUE module) \
    {                                                       \
        (void)self;                                         \
        http_##subject##_define(module);                    \
        return module;                                      \
    }

DEFINER(buffered)
DEFINER(head)
DEFINER(body)
DEFINER(request)
DEFINER(transport)

void http_methods_define(VALUE flavour_class)
{
    rb_define_singleton_method(flavour_class, "define_buffered", define_buffered, 1);
    rb_define_singleton_method(flavour_class, "define_head", define_head, 1);
    rb_define_singleton_method(flavour_class, "define_body", define_body, 1);
    rb_define_singleton_method(flavour_class, "define_request", define_request, 1);
    http_connect_define(flavour_class);
    rb_define_singleton_method(flavour_class, "define_transport", define_transport, 1);
}

void Init_heddle_net_http(void)
{
    VALUE net_http = rb_define_module_under(heddle_module, "NetHTTP");
    Init_heddle_http_io();
    Init_heddle_http_flavour(net_http);
}
