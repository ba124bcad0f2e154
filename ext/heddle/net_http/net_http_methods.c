#include "net_http/net_http_methods.h"

#include "net_http/bindings.h"
#include "net_http/net_http_tls.h"

static bool displaced; // any of ours
static VALUE aliases;

static VALUE kept_by_others(VALUE self)
{
    if (!aliases) {
        VALUE net_http = rb_const_get(heddle_module, rb_intern("NetHTTP"));
        rb_gc_register_mark_object(aliases = rb_const_get(net_http, rb_intern("Aliases")));
    }
    return rb_funcall(aliases, rb_intern("kept"), 2, self, ID2SYM(rb_frame_this_func()));
}

VALUE net_http_behind(VALUE self, int argc, const VALUE *argv, int keywords)
{
    VALUE kept = displaced ? kept_by_others(self) : Qnil;
    if (NIL_P(kept)) return rb_call_super_kw(argc, argv, keywords);
    VALUE arguments = rb_ary_new_from_values(1, &self);
    rb_ary_cat(arguments, argv, argc);
    VALUE result = rb_funcall_with_block_kw(kept, rb_intern("bind_call"), argc + 1, RARRAY_CONST_PTR(arguments),
                                            rb_block_given_p() ? rb_block_proc() : Qnil, keywords);
    RB_GC_GUARD(arguments);
    return result;
}

// Library.displaced = whether somebody has put a method of his own in the place of one of ours.
static VALUE set_displaced(VALUE self, VALUE any)
{
    (void)self;
    displaced = RTEST(any);
    return any;
}

VALUE net_http_constant(const char *text)
{
    VALUE string = rb_interned_str_cstr(text);
    rb_gc_register_mark_object(string);
    return string;
}

#define DEFINER(subject)                                    \
    static VALUE define_##subject(VALUE self, VALUE module) \
    {                                                       \
        (void)self;                                         \
        net_http_##subject##_define(module);                \
        return module;                                      \
    }

DEFINER(buffered)
DEFINER(head)
DEFINER(body)
DEFINER(request)
DEFINER(transport)

void net_http_methods_define(VALUE library_class)
{
    rb_define_singleton_method(library_class, "displaced=", set_displaced, 1);
    rb_define_singleton_method(library_class, "define_buffered", define_buffered, 1);
    rb_define_singleton_method(library_class, "define_head", define_head, 1);
    rb_define_singleton_method(library_class, "define_body", define_body, 1);
    rb_define_singleton_method(library_class, "define_request", define_request, 1);
    net_http_connect_define(library_class);
    rb_define_singleton_method(library_class, "define_transport", define_transport, 1);
}

void Init_heddle_net_http(void)
{
    VALUE net_http = rb_define_module_under(heddle_module, "NetHTTP");
    Init_heddle_net_http_io();
    Init_heddle_net_http_tls();
    Init_heddle_net_http_library(net_http);
}
