#include "task/interrupt.h"

#include "loop/loop.h"
#include "task/guest.h"

static deadline_t recent(const struct task *task)
{
    return task->owner.loop ? task->owner.loop->last_poll : deadline_now();
}

// A shield also holds back cancellation until the shield is left.
static bool cancel_due(const struct task *task)
{
    return task->owner.cancel_pending && !task->held && !scope_shielded(task->chain);
}

bool task_interrupted(const struct task *task)
{
    return !task->held && (cancel_due(task) || scope_due(task->chain, recent(task)));
}

// Code that rescues the exception gets its budgets again.
static void renew_what_is_admitted(struct task *task)
{
    struct loop *loop = task->owner.loop;
    task->owner.admitted = 0;
    if (loop) loop->since_switch = loop->bytes_since_switch = 0;
}

// Uses rb_exc_fatal only in the task's own fiber: if another fiber ended by it, Ruby would end the thread.
void task_raise_cancellation(struct task *task)
{
    if (!cancel_due(task)) return;
    renew_what_is_admitted(task);
    if (!NIL_P(task->guest)) {
        guest_cancel(task);
        return;
    }
    task->owner.cancel_pending = false;
    VALUE interruption = task->interruption;
    task->interruption = Qnil;
    if (!NIL_P(interruption) && !task->killed) rb_exc_raise(interruption);
    VALUE message = rb_sprintf("%" PRIsVALUE " was %s", task->owner.self, task->killed ? "killed" : "cancelled");
    VALUE exception = rb_exc_new_str(heddle_eCancellation, message);
    if (task->killed && task->owner.fiber == rb_fiber_current()) rb_exc_fatal(exception);
    rb_exc_raise(exception);
}

void task_raise_pending(struct task *task)
{
    if (task->held || (!task->owner.cancel_pending && !task->chain->innermost)) return;
    task_raise_cancellation(task);
    struct scope *due = scope_due(task->chain, recent(task));
    if (!due) return;
    renew_what_is_admitted(task);
    scope_raise(due);
}

void task_raise_deferred(struct task *task)
{
    if (!task->owner.deferred) return;
    task->owner.deferred = false;
    task_raise_pending(task);
}

// ---- deadlines, by the loop's timers

static void expire_scope(struct timer *timer)
{
    struct scope *scope = (struct scope *)timer; // its first member
    struct task *task = task_of_owner(scope->chain->owner);
    const struct loop_wait *wait = task->owner.wait;
    if (wait && wait->state == WAIT_PARKED && wait->kind == WAIT_DESCRIPTOR) {
        scope->descriptor = wait->descriptor;
        scope->events = wait->events;
    }
    scope_expire(scope);
    // Not behind a shield, where the wait goes on. Whether another fiber's scope binds, Ruby has to be asked: the
    // waiting fiber does that itself, since an interrupt may strike there, and this fiber is whoever polls.
    if (task->chain->other_fibers || task_pending(task))
        loop_interrupt_owner(task->owner.loop, &task->owner);
}

static void arm(struct scope *scope)
{
    scope->timer.expire = expire_scope;
    timer_add(&scope->chain->owner->loop->timers, &scope->timer, scope->at);
}

void task_arm_deadlines(struct task *task)
{
    if (!task->chain->owner) return; // a thread's scope: the helper watches it
    for (struct scope *scope = task->chain->innermost; scope; scope = scope->outer) {
        if (scope->timer.place && !task->chain->other_fibers) break; // then the outer scopes have theirs, too
        if (!scope->timer.place && !scope->expired && scope->at != DEADLINE_NEVER) arm(scope);
        if (scope_hides_outer(scope)) break;
    }
}

static void disarm(struct scope *scope)
{
    timer_cancel(&scope->chain->owner->loop->timers, &scope->timer);
}

// Arms the timer at once: task_arm_deadlines takes a scope outside of one with a timer to have its own.
static void moved(struct scope *scope)
{
    if (scope->at != DEADLINE_NEVER) arm(scope);
}

static void raise_pending(struct scope_chain *chain)
{
    task_raise_pending(task_of_owner(chain->owner));
}

static bool is_home(struct scope_chain *chain, VALUE fiber)
{
    return chain->owner->fiber == fiber;
}

// For a waiting task, the waiting fiber, because the task's loop asks from another fiber.
static VALUE running_fiber(const struct scope_chain *chain)
{
    return chain->owner->wait ? chain->owner->wait->fiber : rb_fiber_current();
}

const struct scope_host task_scope_host = {
    .moved = moved,
    .disarm = disarm,
    .raise_pending = raise_pending,
    .is_home = is_home,
    .running_fiber = running_fiber,
};
