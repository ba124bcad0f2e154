#include "os/thread_label.h"

static VALUE name_method, native_id_method; // UnboundMethods

static VALUE unbound(const char *name)
{
    VALUE method = rb_funcall(rb_cThread, rb_intern("instance_method"), 1, ID2SYM(rb_intern(name)));
    rb_gc_register_mark_object(method);
    return method;
}

static VALUE ask(VALUE method, VALUE thread)
{
    return rb_funcall(method, rb_intern("bind_call"), 1, thread);
}

VALUE thread_label(VALUE thread)
{
    return thread == rb_thread_main() ? rb_str_new_cstr("main thread") : ask(name_method, thread);
}

long thread_native_id(VALUE thread)
{
    VALUE id = ask(native_id_method, thread);
    return FIXNUM_P(id) ? FIX2LONG(id) : 0;
}

void Init_heddle_thread_label(void)
{
    name_method = unbound("name");
    native_id_method = unbound("native_thread_id");
}
