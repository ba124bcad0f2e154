#include "loop/task.h"

#include "loop/loop.h"

void task_mark(struct task *task)
{
    rb_gc_mark(task->block);
    rb_gc_mark(task->name);
    rb_gc_mark(task->result);
    rb_gc_mark(task->fiber);
    rb_gc_mark(task->waiters);
    rb_gc_mark(task->scheduler);
    rb_gc_mark(task->storage);
    rb_gc_mark(task->run);
    rb_gc_mark(task->on_end);
    for (struct scope *scope = task->scopes; scope; scope = scope->outer)
        rb_gc_mark(scope->self);
}

bool task_pending(const struct task *task)
{
    if (task->cancel_pending) return true;
    for (const struct scope *scope = task->scopes; scope; scope = scope->outer) {
        if (scope->expired && !scope->raised) return true;
    }
    return false;
}

// As Kernel#raise: a class or an exception, with or without a message.
static VALUE new_timeout_error(const struct scope *scope)
{
    VALUE arguments[2] = {scope->exception, scope->message};
    return rb_make_exception(NIL_P(scope->message) ? 1 : 2, arguments);
}

void task_raise_pending(struct task *task)
{
    if (task->cancel_pending) {
        task->cancel_pending = false;
        rb_raise(heddle_eCancellation, "%" PRIsVALUE " was cancelled", task->self);
    }
    // The outermost first: what it ends includes the others.
    struct scope *outermost = NULL;
    for (struct scope *scope = task->scopes; scope; scope = scope->outer) {
        if (scope->expired && !scope->raised) outermost = scope;
    }
    if (!outermost) return;
    outermost->raised = true;
    rb_exc_raise(new_timeout_error(outermost));
}

static void expire_scope(struct timer *timer)
{
    struct scope *scope = (struct scope *)timer; // its first member
    scope->expired = true;
    loop_interrupt_task(scope->task->loop, scope->task);
}

void scope_enter(struct scope *scope, struct loop *loop, int64_t span)
{
    struct task *task = loop->task;
    scope->timer.expire = expire_scope;
    scope->task = task;
    if (span != DEADLINE_NEVER) timer_add(&loop->timers, &scope->timer, deadline_after(deadline_now(), span));
    scope->outer = task->scopes;
    task->scopes = scope;
}

void scope_leave(struct scope *scope)
{
    struct task *task = scope->task;
    if (!task) return;
    timer_cancel(&task->loop->timers, &scope->timer);
    struct scope **link = &task->scopes;
    while (*link && *link != scope)
        link = &(*link)->outer;
    if (*link) *link = scope->outer;
    scope->task = NULL;
}

void task_leave_scopes(struct task *task)
{
    while (task->scopes)
        scope_leave(task->scopes);
}
