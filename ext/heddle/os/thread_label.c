#include "os/thread_label.h"

#include "os/native_thread.h"

#include <ruby.h>
#include <string.h>

static VALUE name_method; // an UnboundMethod

void label_copy(char into[LABEL], const char *name, size_t length)
{
    size_t most = length < LABEL ? length : LABEL - 1;
    while (most < length && most && ((unsigned char)name[most] & 0xC0) == 0x80)
        most--;
    memcpy(into, name, most);
}

struct thread_label thread_label(void)
{
    struct thread_label label = {.number = native_thread_number()};
    VALUE thread = rb_thread_current();
    if (thread == rb_thread_main()) {
        strcpy(label.name, "main thread");
    } else {
        VALUE name = rb_funcall(name_method, rb_intern("bind_call"), 1, thread);
        if (!NIL_P(name)) label_copy(label.name, RSTRING_PTR(name), (size_t)RSTRING_LEN(name));
        RB_GC_GUARD(name);
    }
    return label;
}

void Init_heddle_thread_label(void)
{
    name_method = rb_funcall(rb_cThread, rb_intern("instance_method"), 1, ID2SYM(rb_intern("name")));
    rb_gc_register_mark_object(name_method);
}
