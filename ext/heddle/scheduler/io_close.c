// Heddle::RubyFixes::IOClose: IO#close and its kin wake the fibers that wait for the IO. IO#close closes a socket with
// the GVL held.
#include "scheduler/bindings.h"

#include "loop/send.h"
#include "os/main_ractor.h"
#include "os/trap_handlers.h"
#include "shims.h"
#include "task/current.h"

#include <errno.h>
#include <fcntl.h>
#include <ruby/ractor.h>
#include <sys/socket.h>
#include <unistd.h>

static VALUE cBasicSocket;

static VALUE as_ruby_does(VALUE self)
{
    (void)self; // the method's own receiver
    return rb_call_super(0, NULL);
}

static void io_close_announce(int descriptor)
{
    loops_send_waiting(descriptor);
    pollers_descriptor_closing(descriptor);
}

static VALUE close_in_thread(void *io)
{
    VALUE self = (VALUE)io;
    rb_funcall(rb_thread_current(), rb_intern("report_on_exception="), 1, Qfalse); // the caller gets it through value
    int descriptor = shim_open_descriptor(self);
    if (descriptor >= 0) io_close_announce(descriptor);
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
// everything else through Ruby first: threads that wait for the socket are woken and awaited. Nor does an interrupt
// keep the descriptor open: Ruby forgets it, and then checks for interrupts before close(2).
static VALUE io_close_socket(VALUE self, int descriptor)
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

static bool is_ours(VALUE self, int descriptor)
{
    return descriptor > 2 && RTEST(rb_obj_is_kind_of(self, cBasicSocket)) && shim_autoclose(self) &&
           closes_at_once(descriptor);
}

static VALUE close_it(VALUE self)
{
    int descriptor = shim_open_descriptor(self);
    return is_ours(self, descriptor) ? io_close_socket(self, descriptor) : as_ruby_does(self);
}

static VALUE release_task(VALUE argument)
{
    ((struct task *)argument)->owner.held = false;
    return Qnil;
}

// Ruby waits until other fibers and threads have stopped using the IO. If a deadline or a cancellation raised in that
// wait, the descriptor would stay open and the others would never end (Ruby 4.0). The wait for the process of an
// IO.popen, once the descriptor is closed, may be ended: see process_wait.
static VALUE close_in_task(VALUE (*closing)(VALUE), VALUE self, struct task *task)
{
    if (task->owner.held) return closing(self);
    task->owner.held = true;
    return rb_ensure(closing, self, release_task, (VALUE)task);
}

// Lets the close write into nothing, and so end at once. The peer sees the end now.
static void discard_unsent(VALUE writer)
{
    int descriptor = shim_open_descriptor(writer);
    if (descriptor < 0) return;
    io_close_announce(descriptor);
    int nowhere = rb_cloexec_open("/dev/null", O_WRONLY, 0);
    if (nowhere < 0) return;
    rb_cloexec_dup2(nowhere, descriptor);
    close(nowhere);
}

// A deadline, a timeout or a cancel may end the wait for a peer that does not read. The IO is closed all the same. No
// rb_ensure: Ruby calls its second function in the frame that raised, where rb_call_super finds another method.
static VALUE flush_and_close(VALUE self, VALUE writer, struct task *task)
{
    int state = 0;
    if (!task->owner.held && shim_unsent(writer)) rb_protect(rb_io_flush, writer, &state);
    VALUE error = rb_errinfo();
    if (state) discard_unsent(writer);
    VALUE result = close_in_task(close_it, self, task);
    if (!state) return result;
    if (is_exception(error)) rb_set_errinfo(error);
    rb_jump_tag(state);
}

static VALUE io_close(VALUE self)
{
    // The loops are listed under the main Ractor's lock, and no other Ractor has their IOs.
    int descriptor = in_main_ractor() ? shim_open_descriptor(self) : -1;
    if (descriptor < 0) return rb_call_super(0, NULL);
    struct context context = context_of_fiber();
    struct task *task = context.loop ? task_of_owner(context.loop->owner) : NULL;
    bool alone = rb_thread_alone();
    if (SHIM_TRAP_BREAKS_CLOSE && !alone && trap_handler_runs())
        return task ? close_in_task(from_a_thread, self, task) : from_a_thread(self);
    io_close_announce(descriptor);
    if (task) return flush_and_close(self, rb_io_get_write_io(self), task);
    return NIL_P(context.scheduler) ? close_it(self) : rb_call_super(0, NULL);
}

// ---- closing one side

// Of an IO.popen for both ways, each side is a file; an IO for one way is closed. Returns the IO that is closed, or 0:
// a socket is shut down, which its waits see, and other IOs refuse.
static VALUE side(VALUE self, bool reads)
{
    if (shim_open_descriptor(self) < 0) return 0;
    VALUE writer = rb_io_get_write_io(self);
    if (writer != self) return reads ? self : writer;
    return shim_open_for(self, FMODE_READABLE) == reads && shim_open_for(self, FMODE_WRITABLE) != reads ? self : 0;
}

static VALUE close_side(VALUE self, bool reads)
{
    VALUE io = in_main_ractor() ? side(self, reads) : 0;
    int descriptor = io ? shim_open_descriptor(io) : -1;
    if (descriptor < 0) return rb_call_super(0, NULL);
    struct context context = context_of_fiber();
    io_close_announce(descriptor);
    return context.loop ? flush_and_close(self, io, task_of_owner(context.loop->owner)) : rb_call_super(0, NULL);
}

static VALUE io_close_read(VALUE self)
{
    return close_side(self, true);
}

static VALUE io_close_write(VALUE self)
{
    return close_side(self, false);
}

// The waits are for the old file.
static VALUE io_reopen(int argc, VALUE *argv, VALUE self)
{
    int descriptor = in_main_ractor() ? shim_open_descriptor(self) : -1;
    if (descriptor >= 0) io_close_announce(descriptor);
    return rb_call_super_kw(argc, argv, rb_keyword_given_p());
}

void io_close_define(void)
{
    rb_gc_register_mark_object(cBasicSocket = rb_path2class("BasicSocket"));
    VALUE fixes = rb_define_module_under(heddle_module, "RubyFixes");
    VALUE module = rb_define_module_under(fixes, "IOClose");
    rb_ext_ractor_safe(true); // every Ractor closes IOs
    rb_define_method(module, "close", io_close, 0);
    rb_define_method(module, "close_read", io_close_read, 0);
    rb_define_method(module, "close_write", io_close_write, 0);
    rb_define_method(module, "reopen", io_reopen, -1);
    rb_ext_ractor_safe(false);
}
