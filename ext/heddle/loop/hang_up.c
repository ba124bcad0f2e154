#include "loop/hang_up.h"

#include "loop/internals.h"
#include "loop/interrupt.h"
#include "loop/wake.h"
#include "os/fork.h"
#include "portable.h"

struct watch {
    struct loop *loop;
    struct loop_wait *wait; // of kind WAIT_HANG_UP: it has no fiber, and ends without a switch
    unsigned forks;         // fork_count() at the start: identifies the process that owns the record
    VALUE (*body)(VALUE);
    VALUE argument;
};

// Called where expire_scope of interrupt.c is, and for the same end: nothing is raised here.
void hang_up_found(struct loop *loop, struct loop_wait *wait)
{
    struct wait_owner *owner = wait->owner;
    if (wait->error) { // this process closes the socket: a poll in the kernel would hold it open
        if (loop->thread == rb_thread_current()) descriptor_leave(&loop->poller, wait);
        return;
    }
    if (owner->cancel_pending || owner->cleans_up) return;
    owner->interruption = wait->value;
    owner->cancel_pending = true;
    if (owner->chain->other_fibers || owner_pending(owner)) loop_interrupt_owner(loop, owner);
}

static VALUE watch_body(VALUE argument)
{
    struct watch *watch = (struct watch *)argument;
    // What cannot be watched does not hang up, as a regular file, or is closed.
    descriptor_arm(&watch->loop->poller, watch->wait);
    return watch->body(watch->argument);
}

static VALUE watch_end(VALUE argument)
{
    struct watch *watch = (struct watch *)argument;
    if (watch->forks != fork_count()) return Qnil;
    struct wait_owner *owner = watch->wait->owner;
    if (owner->interruption == watch->wait->value) { // not raised yet
        owner->interruption = Qnil;
        owner->cancel_pending = false;
    }
    descriptor_leave(&watch->loop->poller, watch->wait);
    watch->loop->wakeable--;
    wait_release(&watch->loop->poller.waits, watch->wait);
    return Qnil;
}

VALUE loop_call_until_hang_up(struct loop *loop, int descriptor, VALUE exception, VALUE (*body)(VALUE), VALUE argument)
{
    struct watch watch = {.loop = loop, .forks = fork_count(), .body = body, .argument = argument};
    watch.wait = wait_acquire(&loop->poller.waits, WAIT_HANG_UP);
    watch.wait->owner = loop->owner;
    watch.wait->value = exception;
    watch.wait->descriptor = descriptor;
    watch.wait->events = PORTABLE_POLLRDHUP | POLLHUP;
    loop->wakeable++;
    return rb_ensure(watch_body, (VALUE)&watch, watch_end, (VALUE)&watch);
}
