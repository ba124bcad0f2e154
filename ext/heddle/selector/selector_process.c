// Heddle::Selector#process_wait.
#include "os/pidfd.h"
#include "selector/bindings.h"
#include "selector/selector.h"

#include <errno.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

static VALUE cStatus;
static ID id_wait, id_wait_in_thread;

static VALUE reap(rb_pid_t pid, int flags)
{
    return rb_funcall(cStatus, id_wait, 2, PIDT2NUM(pid), INT2NUM(flags));
}

struct waiting {
    struct selector *selector;
    VALUE fiber;
    int descriptor;
    short found;
};

static VALUE wait_for_exit(VALUE argument)
{
    struct waiting *waiting = (struct waiting *)argument;
    waiting->found = selector_wait(waiting->selector, waiting->fiber, waiting->descriptor, POLLIN);
    return Qnil;
}

static VALUE close_descriptor(VALUE argument)
{
    close(((struct waiting *)argument)->descriptor);
    return Qnil;
}

/*
 * call-seq: selector.process_wait(fiber, pid, flags) -> Process::Status, nil or false
 *
 * Switches to the loop fiber until the child process ends. Returns as Process::Status.wait does, or false when
 * something else resumes +fiber+, the caller. Where the system offers no descriptor for what is waited for (any child,
 * a process group, a stop), waits in a thread.
 */
static VALUE process_wait(VALUE self, VALUE fiber, VALUE process, VALUE options)
{
    struct waiting waiting = {.selector = selector_open(self), .fiber = fiber};
    rb_pid_t pid = NUM2PIDT(process);
    int flags = NUM2INT(options);
    // Any process has a pidfd, but for a process that is no child Ruby must report ECHILD. And a child that has ended
    // needs no wait.
    VALUE status = reap(pid, flags | WNOHANG);
    if (!NIL_P(status) || flags & WNOHANG) return status;
    if (pid > 0 && flags == 0) {
        waiting.descriptor = pidfd_of(pid);
        if (waiting.descriptor >= 0) {
            rb_ensure(wait_for_exit, (VALUE)&waiting, close_descriptor, (VALUE)&waiting);
            return waiting.found ? reap(pid, WNOHANG) : Qfalse;
        }
    }
    return rb_funcall(self, id_wait_in_thread, 2, process, options);
}

void selector_process_define(VALUE selector_class)
{
    rb_gc_register_mark_object(cStatus = rb_path2class("Process::Status"));
    id_wait = rb_intern("wait");
    id_wait_in_thread = rb_intern("wait_in_thread");
    rb_define_method(selector_class, "process_wait", process_wait, 3);
}
