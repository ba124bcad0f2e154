#include "task/task.h"

#include "loop/loop.h"

void task_mark(struct task *task)
{
    // Itself, too: a queue or a run that knows the record passes `self` on. Another object's reference may move it.
    if (task->self) rb_gc_mark(task->self);
    rb_gc_mark(task->block);
    rb_gc_mark(task->name);
    rb_gc_mark(task->result);
    rb_gc_mark(task->fiber);
    rb_gc_mark(task->waiters);
    rb_gc_mark(task->scheduler);
    rb_gc_mark(task->storage);
    rb_gc_mark(task->run);
    rb_gc_mark(task->on_end);
    scope_chain_mark(&task->scopes);
}

static deadline_t recent(const struct task *task)
{
    return task->loop ? task->loop->last_poll : deadline_now();
}

// A shield holds cancellation up, too, until it is left.
static bool cancel_due(const struct task *task)
{
    return task->cancel_pending && !task->held && !scope_shielded(task->chain);
}

bool task_interrupted(const struct task *task)
{
    return !task->held && (cancel_due(task) || scope_due(task->chain, recent(task)));
}

// What rescues the exception may do as much again.
static void renew_what_is_admitted(struct task *task)
{
    task->admitted = 0;
    if (task->loop) task->loop->since_switch = task->loop->bytes_since_switch = 0;
}

// Only in the task's own fiber may it be more than an exception: Ruby would end the thread where another fiber ends by it.
void task_raise_cancellation(struct task *task)
{
    if (!cancel_due(task)) return;
    renew_what_is_admitted(task);
    task->cancel_pending = false;
    VALUE message = rb_sprintf("%" PRIsVALUE " was %s", task->self, task->killed ? "killed" : "cancelled");
    VALUE exception = rb_exc_new_str(heddle_eCancellation, message);
    if (task->killed && task->fiber == rb_fiber_current()) rb_exc_fatal(exception);
    rb_exc_raise(exception);
}

void task_raise_pending(struct task *task)
{
    if (task->held || (!task->cancel_pending && !task->chain->innermost)) return;
    task_raise_cancellation(task);
    struct scope *due = scope_due(task->chain, recent(task));
    if (!due) return;
    renew_what_is_admitted(task);
    scope_raise(due);
}

static void expire_scope(struct timer *timer)
{
    struct scope *scope = (struct scope *)timer; // its first member
    struct task *task = scope->chain->task;
    scope_expire(scope);
    if (task_pending(task)) loop_interrupt_task(task->loop, task); // not from within a shield: its wait is in order
}

void task_raise_deferred(struct task *task)
{
    if (!task->deferred) return;
    task->deferred = false;
    task_raise_pending(task);
}

void task_prepare_wait(struct task *task)
{
    task_raise_pending(task);
    task_arm_deadlines(task);
}

void task_arm_deadlines(struct task *task)
{
    if (!task->chain->task) return; // a thread's: the helper watches over them
    for (struct scope *scope = task->chain->innermost; scope; scope = scope->outer) {
        if (scope->timer.place && !task->chain->strangers) break; // then those outside have theirs, too
        if (!scope->timer.place && !scope->expired && scope->at != DEADLINE_NEVER) {
            scope->timer.expire = expire_scope;
            timer_add(&task->loop->timers, &scope->timer, scope->at);
        }
        if (scope_hides_outer(scope)) break;
    }
}
