#include "task/cancel.h"

#include "loop/loop.h"
#include "task/current.h"
#include "task/foreign.h"
#include "task/interrupt.h"
#include "task/task_run.h"

static unsigned long withdrawals;

unsigned long task_withdrawals(void)
{
    return withdrawals;
}

void task_cancel(struct task *task, bool again)
{
    if (task->status == TASK_QUEUED) {
        withdrawals++;
        task_end(task, TASK_CANCELLED, Qnil);
        return;
    }
    if (task->status != TASK_RUNNING || (task->cancel_asked && !again)) return;
    task->cancel_asked = true;
    task->owner.cancel_pending = true;
    if (!task->owner.loop) {
        foreign_cancel(task);
    } else if (task == task_current()) {
        task_raise_pending(task);
    } else if (task_pending(task)) { // not behind a shield, where the wait goes on
        loop_interrupt_owner(task->owner.loop, &task->owner);
    }
}

static void kill_task(struct task *task)
{
    if (task->killed || task->status != TASK_RUNNING) return;
    task->killed = task->cancel_asked = task->owner.cancel_pending = true;
    if (task->owner.loop->owner == &task->owner) {
        task_raise_pending(task);
    } else {
        loop_interrupt_owner_now(task->owner.loop, &task->owner);
    }
}

bool task_kill(struct loop *loop, VALUE fiber)
{
    struct wait_owner *owner = fiber_index_owner(&loop->running, fiber);
    if (!owner) return loop_keeps_idle(loop, fiber); // an idle carrier's task has ended already
    kill_task(task_of_owner(owner));
    return true;
}

void cancel_all(VALUE tasks, bool again)
{
    struct task *current = task_current();
    for (long i = 0; i < RARRAY_LEN(tasks); i++) {
        struct task *task = task_of(RARRAY_AREF(tasks, i));
        if (task != current) task_cancel(task, again);
    }
}

// A task may use the time that its shield allows.
static deadline_t end_of_shields(VALUE tasks)
{
    deadline_t latest = 0;
    for (long i = 0; i < RARRAY_LEN(tasks); i++) {
        const struct task *task = task_of(RARRAY_AREF(tasks, i));
        deadline_t end = scope_shielded(task->chain) ? scope_in_force(task->chain) : 0;
        if (end != DEADLINE_NEVER && end > latest) latest = end;
    }
    return latest;
}

static void give_up(VALUE tasks, const struct cancelling *cancelling)
{
    for (long i = 0; i < RARRAY_LEN(tasks); i++) {
        VALUE object = RARRAY_AREF(tasks, i);
        VALUE backtrace = rb_funcall(object, rb_intern("backtrace"), 0);
        VALUE where = NIL_P(backtrace) ? rb_str_new_cstr("an unknown place")
                                       : rb_ary_join(backtrace, rb_str_new_cstr("\n\tfrom "));
        rb_warn("heddle: %" PRIsVALUE " refuses to end: it was cancelled %d times, %g s apart, and is still running. "
                "Heddle stops waiting for it, and its code will not run to its end. Let Heddle::Cancellation pass, and "
                "wait in `ensure` only within Heddle.shield. It is at %" PRIsVALUE,
                object, CANCEL_ROUNDS, (double)cancelling->grace / 1e9, where);
        task_give_up(task_of(object));
    }
}

static VALUE wait_a_while(VALUE argument)
{
    struct cancelling *cancelling = (struct cancelling *)argument;
    deadline_t until = deadline_after(deadline_now(), cancelling->grace);
    for (;;) {
        VALUE tasks = cancelling->tasks(cancelling->owner);
        if (RARRAY_LEN(tasks) == 0) return Qnil;
        deadline_t now = deadline_now(), shields = end_of_shields(tasks);
        if (shields > now && until < deadline_after(shields, cancelling->grace))
            until = deadline_after(shields, cancelling->grace);
        if (now >= until) return Qnil;
        cancelling->wait(cancelling->owner, until);
    }
}

static VALUE next_round(VALUE argument)
{
    struct cancelling *cancelling = (struct cancelling *)argument;
    VALUE tasks = cancelling->tasks(cancelling->owner);
    if (RARRAY_LEN(tasks) == 0) return Qnil;
    if (cancelling->rounds == CANCEL_ROUNDS) {
        give_up(tasks, cancelling);
        return Qnil;
    }
    cancelling->rounds++;
    if (!cancelling->cancelled) cancel_all(tasks, true);
    cancelling->cancelled = false;
    return rb_ensure(wait_a_while, argument, next_round, argument);
}

void cancel_and_wait(struct cancelling *cancelling)
{
    // A deadline that has passed must not stop the wait for the tasks that it ends.
    deadline_shield(next_round, (VALUE)cancelling);
}
