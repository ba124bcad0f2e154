#include "os/socket_object.h"

#include "protect.h"
#include "shims.h"

static ID id_do_not_reverse_lookup, id_close;
static VALUE cBasicSocket;

VALUE socket_take(VALUE klass, int *descriptor)
{
    // Called first: it runs a Ruby method, in which an interrupt may raise.
    bool numeric = RTEST(rb_funcall(cBasicSocket, id_do_not_reverse_lookup, 0));
    return shim_new_socket(klass, descriptor, numeric);
}

static VALUE socket_object_close_socket(VALUE socket)
{
    return rb_funcall(socket, id_close, 0);
}

static bool socket_object_closed(VALUE socket)
{
    return shim_open_descriptor(socket) < 0;
}

// An interrupt inside close may leave the socket open.
void socket_discard(VALUE socket)
{
    int state = 0;
    protect_until(socket_object_closed, socket_object_close_socket, socket, &state);
    if (state) rb_jump_tag(state);
}

void Init_heddle_socket_object(void)
{
    id_do_not_reverse_lookup = rb_intern("do_not_reverse_lookup");
    id_close = rb_intern("close");
    rb_gc_register_mark_object(cBasicSocket = rb_path2class("BasicSocket"));
}
