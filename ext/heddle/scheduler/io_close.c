// Heddle::Compat::IOClose: IO#close wakes the fibers that wait for the IO, and closes a socket with the GVL held.
#include "scheduler/bindings.h"

#include "loop/loop.h"
#include "os/trap_handlers.h"
#include "shims.h"
#include "task/current.h"

#include <errno.h>
#include <ruby/ractor.h>
#include <sys/socket.h>
#include <unistd.h>

// Set in the main Ractor only: the loops belong to it and are listed under its lock, and no other Ractor has their IOs.
static rb_ractor_local_key_t main_ractor_key;

static VALUE cBasicSocket;

static VALUE as_ruby_does(VALUE self)
{
    (void)self; // the method's own receiver
    return rb_call_super(0, NULL);
}

static void closing(int descriptor)
{
    loops_send_waiting(descriptor);
    pollers_descriptor_closing(descriptor);
}

static VALUE close_in_thread(void *io)
{
    VALUE self = (VALUE)io;
    rb_funcall(rb_thread_current(), rb_intern("report_on_exception="), 1, Qfalse); // the caller gets it through value
    int descriptor = shim_open_descriptor(self);
    if (descriptor >= 0) closing(descriptor);
    return rb_io_close(self);
}

static VALUE from_a_thread(VALUE self)
{
    return rb_funcall(rb_thread_create(close_in_thread, (void *)self), rb_intern("value"), 0);
}

// Only a socket with SO_LINGER set may wait in close(2).
static bool closes_at_once(int descriptor)
{
    struct linger linger = {0};
    socklen_t length = sizeof linger;
    return getsockopt(descriptor, SOL_SOCKET, SO_LINGER, &linger, &length) == 0 && !(linger.l_onoff && linger.l_linger);
}

// Ruby releases the GVL for close(2), which costs the 100 ms of a quantum beside a CPU-bound thread. This function does
// everything else through Ruby first: threads that wait for the socket are woken and awaited.
static VALUE close_socket(VALUE self, int descriptor)
{
    int state = 0;
    shim_set_autoclose(self, false);
    VALUE result = rb_protect(as_ruby_does, self, &state);
    if (!shim_close_began(self)) { // something was raised before the close began
        shim_set_autoclose(self, true);
    } else {
        shim_give_up_descriptor(self);
        if (close(descriptor) < 0 && errno != EINTR && !state)
            rb_syserr_fail(errno, NULL); // other code had closed the number
    }
    if (state) rb_jump_tag(state);
    return result;
}

static VALUE release_task(VALUE argument)
{
    ((struct task *)argument)->held = false;
    return Qnil;
}

// Ruby waits until other fibers and threads have stopped using the IO. If a deadline or a cancellation raised in that
// wait, the descriptor would stay open and the others would never end (Ruby 4.0), or a close that has done its work
// would raise.
static VALUE close_in_task(VALUE (*close_it)(VALUE), VALUE self, struct task *task)
{
    if (task->held) return close_it(self);
    task->held = true;
    return rb_ensure(close_it, self, release_task, (VALUE)task);
}

static VALUE io_close(VALUE self)
{
    int descriptor = rb_ractor_local_storage_ptr(main_ractor_key) ? shim_open_descriptor(self) : -1;
    if (descriptor < 0) return rb_call_super(0, NULL);
    struct place place = place_of_fiber();
    struct task *task = place.loop ? task_of_owner(place.loop->owner) : NULL;
    bool alone = rb_thread_alone();
    if (SHIM_TRAP_BREAKS_CLOSE && !alone && trap_handler_runs())
        return task ? close_in_task(from_a_thread, self, task) : from_a_thread(self);
    closing(descriptor);
    if (task) return close_in_task(as_ruby_does, self, task);
    if (alone || descriptor <= 2 || !RTEST(rb_obj_is_kind_of(self, cBasicSocket)) || !shim_autoclose(self) ||
        !NIL_P(place.scheduler) || !closes_at_once(descriptor)) {
        return rb_call_super(0, NULL);
    }
    return close_socket(self, descriptor);
}

void io_close_define(void)
{
    main_ractor_key = rb_ractor_local_storage_ptr_newkey(NULL);
    rb_ractor_local_storage_ptr_set(main_ractor_key, &main_ractor_key);
    rb_gc_register_mark_object(cBasicSocket = rb_path2class("BasicSocket"));
    VALUE compat = rb_define_module_under(heddle_module, "Compat");
    VALUE module = rb_define_module_under(compat, "IOClose");
    rb_ext_ractor_safe(true); // every Ractor closes IOs
    rb_define_method(module, "close", io_close, 0);
    rb_ext_ractor_safe(false);
}
