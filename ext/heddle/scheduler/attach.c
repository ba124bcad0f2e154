#include "scheduler/attach.h"

#include "os/fork.h"
#include "scheduler/bindings.h"
#include "shims.h"
#include "task/closing.h"
#include "task/task_loop.h"

// ---- setting a scheduler, and taking it away

static void set(VALUE scheduler)
{
    rb_fiber_scheduler_set(scheduler);
    loop_of(scheduler)->recheck_due = true;
}

static VALUE detach(VALUE scheduler)
{
    // No interrupt is checked between these lines: set_scheduler calls close at once.
    tasks_of(scheduler)->detaching = true;
    rb_fiber_scheduler_set(Qnil);
    tasks_of(scheduler)->detaching = false;
    return Qnil;
}

// ---- the end of the thread
//
// A fiber that waits for a Mutex, a Queue or a thread is in one of Ruby's lists, with an entry on its own stack. If the
// thread ends without that fiber, Ruby crashes on the entry: "[BUG] unexpected THREAD_KILLED", or a freed stack. Ruby
// closes only the scheduler that is set on a thread when the thread ends. The others are closed here.

static struct loop *left_open(VALUE thread)
{
    for (struct loop *loop = loops_first(); loop; loop = loop->next_live) {
        if (loop->thread == thread && task_loop_of(loop)->visiting && loop->fork_count == fork_count()) return loop;
    }
    return NULL;
}

static void end_thread(rb_event_flag_t event, VALUE data, VALUE self, ID method, VALUE klass)
{
    (void)event, (void)data, (void)self, (void)method, (void)klass;
    VALUE thread = rb_thread_current();
    if (thread == rb_thread_main()) return; // the process ends: nothing reads those lists any more
    for (struct loop *loop; (loop = left_open(thread));) {
        VALUE scheduler = loop->self;
        set(scheduler);
        rb_ensure(closing_cancel, scheduler, detach, scheduler); // the loop is closed in any case
        RB_GC_GUARD(scheduler);
    }
}

static void watch_ends_of_threads(void)
{
    static bool watched;
    if (watched) return;
    watched = true;
    rb_add_event_hook(end_thread, RUBY_EVENT_THREAD_END, Qnil);
}

// ---- calling

struct attachment {
    VALUE scheduler;
    VALUE (*body)(VALUE);
    VALUE argument;
    bool thread_dies;
};

static VALUE attached_body(VALUE argument)
{
    struct attachment *attachment = (struct attachment *)argument;
    int state = 0;
    VALUE result = rb_protect(attachment->body, attachment->argument, &state);
    if (!state) return result;
    attachment->thread_dies = shim_thread_dies_silently();
    rb_jump_tag(state);
}

static VALUE attached_end(VALUE argument)
{
    const struct attachment *attachment = (struct attachment *)argument;
    VALUE scheduler = attachment->scheduler;
    if (attachment->thread_dies && loop_of(scheduler)->poller.backend_state) {
        rb_ensure(closing_cancel, scheduler, detach, scheduler);
    } else {
        detach(scheduler);
    }
    return Qnil;
}

VALUE scheduler_attached(VALUE scheduler, VALUE (*body)(VALUE), VALUE argument)
{
    struct attachment attachment = {.scheduler = scheduler, .body = body, .argument = argument};
    watch_ends_of_threads();
    set(scheduler);
    tasks_of(scheduler)->visiting = true;
    return rb_ensure(attached_body, (VALUE)&attachment, attached_end, (VALUE)&attachment);
}

static VALUE yield_nothing(VALUE unused)
{
    (void)unused;
    return rb_yield_values(0);
}

/*
 * call-seq: scheduler.attached { ... } -> object
 *
 * Sets the scheduler on this thread for the time of the block. Tasks that have not ended then stay as they are, and
 * continue the next time.
 *
 * @api private
 */
static VALUE attached(VALUE self)
{
    return scheduler_attached(self, yield_nothing, Qnil);
}

// ---- the scheduler of a run

static VALUE close_and_take_off(VALUE unused)
{
    (void)unused;
    return rb_fiber_scheduler_set(Qnil);
}

// Ruby 3.1 keeps a scheduler whose close has raised.
static VALUE take_off_after_all(VALUE self)
{
    if (rb_fiber_scheduler_get() != self) return Qnil;
    if (loop_of(self)->closed) return detach(self);
    return rb_ensure(close_and_take_off, Qnil, detach, self);
}

static VALUE take_off(VALUE self)
{
    return rb_ensure(close_and_take_off, Qnil, take_off_after_all, self);
}

/*
 * call-seq: scheduler.installed { ... } -> object
 *
 * Sets the scheduler on this thread for the time of the block, and closes it afterwards. Whatever interrupt comes
 * meanwhile, even while the scheduler closes, the thread has no scheduler afterwards: in Ruby code an interrupt may
 * come before the first line of an +ensure+.
 *
 * @api private
 */
static VALUE installed(VALUE self)
{
    rb_need_block();
    rb_fiber_scheduler_set(self);
    return rb_ensure(yield_nothing, Qnil, take_off, self);
}

void attach_define(VALUE scheduler_class)
{
    rb_define_method(scheduler_class, "attached", attached, 0);
    rb_define_method(scheduler_class, "installed", installed, 0);
}
