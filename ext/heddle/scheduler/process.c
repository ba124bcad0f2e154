#include "scheduler/process.h"

#include "loop/callers.h"
#include "loop/park.h"
#include "os/background_thread.h"
#include "os/pidfd.h"
#include "scheduler/bindings.h"
#include "scope/scope.h"
#include "shims.h"
#include "task/task.h"

#include <errno.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

static VALUE cStatus;
static ID id_wait, id_value, id_kill, id_join, id_alive;

struct waiting {
    struct loop *loop;
    rb_pid_t pid;
    int flags;
    int descriptor;
    VALUE thread;
    VALUE status;
};

static VALUE reap(rb_pid_t pid, int flags)
{
    return rb_funcall(cStatus, id_wait, 2, PIDT2NUM(pid), INT2NUM(flags));
}

static VALUE wait_by_descriptor(VALUE argument)
{
    struct waiting *waiting = (struct waiting *)argument;
    for (;;) {
        int found = loop_wait_descriptor(waiting->loop, waiting->descriptor, POLLIN, DEADLINE_NEVER);
        if (found < 0) rb_syserr_fail(-found, "waiting for a child process");
        VALUE status = reap(waiting->pid, waiting->flags | WNOHANG);
        if (!NIL_P(status)) return status;
    }
}

static VALUE close_descriptor(VALUE argument)
{
    close(((struct waiting *)argument)->descriptor);
    return Qnil;
}

// The thread may outlive the fiber that started it, so it gets a Ruby object instead of a pointer to a stack.
static VALUE reap_asked(VALUE asked)
{
    return reap(NUM2PIDT(rb_ary_entry(asked, 0)), NUM2INT(rb_ary_entry(asked, 1)));
}

// Without its maker's mask, under which kill_and_join would wait for the child's end.
static VALUE reap_in_thread(void *asked)
{
    return background_thread_unmasked(reap_asked, (VALUE)asked);
}

static VALUE wait_by_thread(VALUE argument)
{
    return rb_funcall(((struct waiting *)argument)->thread, id_value, 0);
}

// Joins the thread: until it has ended, it may reap a child that other code waits for.
static VALUE kill_and_join(VALUE thread)
{
    if (RTEST(rb_funcall(thread, id_alive, 0))) rb_funcall(rb_funcall(thread, id_kill, 0), id_join, 0);
    return Qnil;
}

static VALUE kill_thread(VALUE argument)
{
    return deadline_shield(kill_and_join, ((struct waiting *)argument)->thread);
}

static VALUE wait_for_child(struct waiting *waiting)
{
    rb_pid_t pid = waiting->pid;
    int flags = waiting->flags;
    if (pid > 0 && (flags & ~WNOHANG) == 0) {
        waiting->descriptor = pidfd_of(pid);
        if (waiting->descriptor >= 0)
            return rb_ensure(wait_by_descriptor, (VALUE)waiting, close_descriptor, (VALUE)waiting);
        if (errno == ESRCH) return reap(pid, flags | WNOHANG); // raises ECHILD as Ruby does
    }
    VALUE asked = rb_ary_new_from_args(2, PIDT2NUM(pid), INT2NUM(flags));
    waiting->thread = rb_thread_create(reap_in_thread, (void *)asked);
    rb_ivar_set(waiting->thread, rb_intern("__heddle_asked__"), asked); // kept alive until the thread has read it
    return rb_ensure(wait_by_thread, (VALUE)waiting, kill_thread, (VALUE)waiting);
}

static VALUE wait_for_owned(VALUE argument)
{
    struct waiting *waiting = (struct waiting *)argument;
    return waiting->status = wait_for_child(waiting);
}

// Nobody else would reap the child.
static VALUE detach_child(VALUE argument)
{
    struct waiting *waiting = (struct waiting *)argument;
    if (NIL_P(waiting->status)) rb_detach_process(waiting->pid);
    return Qnil;
}

struct owned {
    struct waiting *waiting;
    struct task *task;
    bool held;
};

static VALUE let_interrupt(VALUE argument)
{
    struct owned *owned = (struct owned *)argument;
    owned->task->owner.held = false;
    return rb_ensure(wait_for_owned, (VALUE)owned->waiting, detach_child, (VALUE)owned->waiting);
}

static VALUE hold_again(VALUE argument)
{
    struct owned *owned = (struct owned *)argument;
    owned->task->owner.held = owned->held;
    return Qnil;
}

VALUE process_wait(struct loop *loop, rb_pid_t pid, int flags)
{
    // Any process has a pidfd, but for a process that is no child Ruby must report ECHILD. And a child that has ended
    // needs no wait.
    VALUE status = reap(pid, flags | WNOHANG);
    if (!NIL_P(status)) return status;
    struct waiting waiting = {.loop = loop, .pid = pid, .flags = flags, .status = Qnil};
    if (pid <= 0 || !called_by_owner_of_child()) return wait_for_child(&waiting);
    struct task *task = task_of_owner(loop->owner);
    struct owned owned = {.waiting = &waiting, .task = task, .held = task->owner.held};
    return rb_ensure(let_interrupt, (VALUE)&owned, hold_again, (VALUE)&owned);
}

void Init_heddle_process(void)
{
    cStatus = rb_path2class("Process::Status");
    rb_gc_register_mark_object(cStatus);
    id_wait = rb_intern("wait");
    id_value = rb_intern("value");
    id_kill = rb_intern("kill");
    id_join = rb_intern("join");
    id_alive = rb_intern("alive?");
}
