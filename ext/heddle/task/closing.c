#include "task/closing.h"

#include "os/fork.h"
#include "task/cancel.h"
#include "task/task_loop.h"
#include "task/task_run.h"

static const int64_t END_GRACE =
    1000000000; // nanoseconds for what is scheduled, where an error or `exit` ends the thread

struct closing {
    VALUE scheduler;
    VALUE ended_by; // what ends the thread, as rb_errinfo has it; or nil
    deadline_t until;
};

static void wait_for_tasks(VALUE self, deadline_t until)
{
    struct task_loop *tasks = tasks_of(self);
    if (tasks->count == 0) return;
    tasks->drain_fiber = rb_fiber_current();
    loop_block(&tasks->loop, self, until == DEADLINE_NEVER ? until : until - deadline_now());
    tasks->drain_fiber = 0;
}

static VALUE drain(VALUE argument)
{
    struct closing *closing = (struct closing *)argument;
    const struct task_loop *tasks = tasks_of(closing->scheduler);
    while (tasks->count > 0) {
        // A fiber may call exit while all others wait.
        if (closing->until == DEADLINE_NEVER && !NIL_P(tasks->fatal)) closing->until = deadline_now() + END_GRACE;
        if (closing->until != DEADLINE_NEVER && deadline_now() >= closing->until) break;
        wait_for_tasks(closing->scheduler, closing->until);
    }
    return Qnil;
}

// What is left when the time is over, or when an interrupt ends the wait. It still gets to clean up.
static VALUE cancel_rest(VALUE argument)
{
    VALUE self = ((struct closing *)argument)->scheduler;
    struct cancelling cancelling = {
        .owner = self, .tasks = task_loop_tasks, .wait = wait_for_tasks, .grace = CANCEL_GRACE};
    const struct task_loop *tasks = tasks_of(self);
    if (tasks->count > 0 && tasks->loop.fork_count == fork_count()) cancel_and_wait(&cancelling);
    return Qnil;
}

static VALUE drain_and_cancel(VALUE argument)
{
    return rb_ensure(drain, argument, cancel_rest, argument);
}

static VALUE finish(VALUE argument)
{
    loop_close(loop_of(((struct closing *)argument)->scheduler));
    return Qnil;
}

// Ruby itself calls Scheduler#close when a thread ends, beneath all methods, with what ended the thread as $!.
// Elsewhere $! may be an error that the program has rescued. A signal counts wherever the program is.
static VALUE what_ended_the_thread(void)
{
    VALUE error = rb_errinfo();
    if (NIL_P(error) || RARRAY_LEN(rb_make_backtrace()) <= 1) return error; // the one is ours
    return is_exception(error) && RTEST(rb_obj_is_kind_of(error, rb_eSignal)) ? error : Qnil;
}

// Signals, and Thread#kill, which is no exception.
static bool must_end_at_once(VALUE error)
{
    return !NIL_P(error) && (!is_exception(error) || RTEST(rb_obj_is_kind_of(error, rb_eSignal)));
}

void closing_run(VALUE scheduler)
{
    struct closing closing = {.scheduler = scheduler, .ended_by = what_ended_the_thread(), .until = DEADLINE_NEVER};
    if (!NIL_P(closing.ended_by)) closing.until = deadline_now() + END_GRACE;
    bool at_once = must_end_at_once(closing.ended_by);
    rb_ensure(at_once ? cancel_rest : drain_and_cancel, (VALUE)&closing, finish, (VALUE)&closing);
    // The thread's own error tells how it ended, and the main thread's the status of the process.
    VALUE fatal = tasks_of(scheduler)->fatal;
    if (NIL_P(closing.ended_by) && !NIL_P(fatal)) rb_exc_raise(fatal);
}

VALUE closing_cancel(VALUE scheduler)
{
    struct closing closing = {.scheduler = scheduler, .ended_by = Qnil, .until = DEADLINE_NEVER};
    return rb_ensure(cancel_rest, (VALUE)&closing, finish, (VALUE)&closing);
}
