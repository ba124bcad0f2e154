#include "task/closing.h"

#include "loop/park.h"
#include "os/fork.h"
#include "task/cancel.h"
#include "task/join.h"
#include "task/task_end.h"
#include "task/task_loop.h"
#include "task/task_run.h"

#include <string.h>

// Nanoseconds that tasks may still run when an error or `exit` ends the thread.
static const int64_t END_GRACE = 1000000000;

struct closing {
    VALUE scheduler;
    VALUE ended_by; // the rb_errinfo that ends the thread, or nil
    deadline_t until;
};

static void wait_for_tasks(VALUE self, deadline_t until)
{
    struct task_loop *tasks = tasks_of(self);
    if (tasks->tasks.count == 0) return;
    tasks->drain_fiber = rb_fiber_current();
    loop_block(&tasks->loop, self, until == DEADLINE_NEVER ? until : until - deadline_now());
    tasks->drain_fiber = 0;
}

static VALUE drain(VALUE argument)
{
    struct closing *closing = (struct closing *)argument;
    const struct task_loop *tasks = tasks_of(closing->scheduler);
    while (tasks->tasks.count > 0) {
        // A fiber may call exit while all others wait.
        if (closing->until == DEADLINE_NEVER && !NIL_P(tasks->fatal)) closing->until = deadline_now() + END_GRACE;
        if (closing->until != DEADLINE_NEVER && deadline_now() >= closing->until) break;
        wait_for_tasks(closing->scheduler, closing->until);
    }
    return Qnil;
}

// Cancels the tasks that are left when the time is over or an interrupt ends the wait. Their `ensure` blocks still run.
static VALUE cancel_rest(VALUE argument)
{
    VALUE self = ((struct closing *)argument)->scheduler;
    const struct task_loop *tasks = tasks_of(self);
    struct cancelling cancelling = {
        .owner = self, .tasks = &tasks->tasks, .wait = wait_for_tasks, .grace = CANCEL_GRACE};
    if (tasks->tasks.count > 0 && tasks->loop.fork_count == fork_count()) cancel_and_wait(&cancelling);
    return Qnil;
}

static VALUE drain_and_cancel(VALUE argument)
{
    return rb_ensure(drain, argument, cancel_rest, argument);
}

// Other threads may wait for the end of tasks that were given up, or of their pools. None of these ends any more.
static void tell_waiters(VALUE scheduler)
{
    int state = 0;
    VALUE tasks = tasks_given_up(scheduler);
    for (long i = 0; i < RARRAY_LEN(tasks); i++) {
        struct task *task = task_of(RARRAY_AREF(tasks, i));
        if (task_ended(task)) continue;
        join_wake_all(task->owner.self, task->waiters, &state);
        task_successor(task, &state);
    }
    if (state) rb_jump_tag(state);
}

static VALUE closing_finish(VALUE argument)
{
    VALUE scheduler = ((struct closing *)argument)->scheduler;
    struct loop *loop = loop_of(scheduler);
    bool own = loop->fork_count == fork_count();
    loop_close(loop);
    if (own) tell_waiters(scheduler);
    return Qnil;
}

static bool closing_ends_with(const char **end, const char *start, const char *suffix)
{
    size_t length = strlen(suffix);
    if ((size_t)(*end - start) < length || strncmp(*end - length, suffix, length) != 0) return false;
    *end -= length;
    return true;
}

// Returns whether Ruby itself closes the scheduler, at the end of the thread, below all methods. A subclass whose
// #close or #scheduler_close calls super adds frames: then the outermost frame is one of these methods.
static bool beneath_all_methods(void)
{
    VALUE backtrace = rb_make_backtrace();
    if (RARRAY_LEN(backtrace) <= 1) return true; // the only frame is this method's
    VALUE outermost = rb_ary_entry(backtrace, -1);
    const char *start = RSTRING_PTR(outermost), *end = start + RSTRING_LEN(outermost);
    if (!closing_ends_with(&end, start, "close'")) return false;
    closing_ends_with(&end, start, "scheduler_");
    bool whole_name = end > start && strchr("`'#.", end[-1]);
    RB_GC_GUARD(outermost);
    return whole_name;
}

// The error that ended the thread: $! at the thread's end. Elsewhere $! may be an error that the program has rescued;
// only a signal counts there, too.
static VALUE what_ended_the_thread(void)
{
    VALUE error = rb_errinfo();
    if (NIL_P(error) || beneath_all_methods()) return error;
    return is_exception(error) && RTEST(rb_obj_is_kind_of(error, rb_eSignal)) ? error : Qnil;
}

// True for signals, and for Thread#kill, which is not an exception.
static bool must_end_at_once(VALUE error)
{
    return !NIL_P(error) && (!is_exception(error) || RTEST(rb_obj_is_kind_of(error, rb_eSignal)));
}

void closing_run(VALUE scheduler)
{
    struct closing closing = {.scheduler = scheduler, .ended_by = what_ended_the_thread(), .until = DEADLINE_NEVER};
    if (!NIL_P(closing.ended_by)) closing.until = deadline_now() + END_GRACE;
    bool at_once = tasks_of(scheduler)->killed || must_end_at_once(closing.ended_by);
    rb_ensure(at_once ? cancel_rest : drain_and_cancel, (VALUE)&closing, closing_finish, (VALUE)&closing);
    // The thread's own error tells how the thread ended, and gives the main thread's exit status.
    VALUE fatal = tasks_of(scheduler)->fatal;
    if (NIL_P(closing.ended_by) && !NIL_P(fatal)) rb_exc_raise(fatal);
}
