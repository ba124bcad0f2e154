#include "net_http/http_methods.h"

#include "net_http/net_http.h"
#include "net_http/http_wait.h"

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

/*
 * call-seq: Heddle::NetHTTP.look = true or false
 *
 * Beside a thread that computes, each time Ruby's lock is let go of costs up to 100 ms. Where getting it back has taken more
 * than 1 ms, the next waits look for the reply for up to 200 µs first, keeping the lock. False switches that off.
 */
static VALUE set_look(VALUE self, VALUE look)
{
    (void)self;
    http_wait_looks = RTEST(look);
    return look;
}

void Init_heddle_net_http(void)
{
    VALUE net_http = rb_define_module_under(heddle_module, "NetHTTP");
    rb_define_singleton_method(net_http, "look=", set_look, 1);
    Init_heddle_http_io();
    Init_heddle_http_flavour(net_http);
}
