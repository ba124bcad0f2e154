#include "loop/interrupt.h"

#include "loop/wake.h"

static deadline_t recent(const struct wait_owner *owner)
{
    return owner->loop ? owner->loop->last_poll : deadline_now();
}

// A shield also holds back cancellation until the shield is left.
static bool cancel_due(const struct wait_owner *owner)
{
    return owner->cancel_pending && !owner->held && !scope_shielded(owner->chain);
}

bool owner_interrupted(const struct wait_owner *owner)
{
    return !owner->held && (cancel_due(owner) || scope_due(owner->chain, recent(owner)));
}

// Code that rescues the exception gets its budgets again.
static void renew_grace(struct wait_owner *owner)
{
    struct loop *loop = owner->loop;
    owner->grace_used = 0;
    if (loop) loop->since_switch = loop->bytes_since_switch = 0;
}

VALUE owner_cancellation(const struct wait_owner *owner)
{
    return rb_exc_new_str(heddle_eCancellation,
                          rb_sprintf("%" PRIsVALUE " was %s", owner->self, owner->killed ? "killed" : "cancelled"));
}

// Uses rb_exc_fatal only in the task's own fiber: if another fiber ended by it, Ruby would end the thread.
void owner_raise_cancellation(struct wait_owner *owner)
{
    if (!cancel_due(owner)) return;
    renew_grace(owner);
    owner->cancel_pending = false;
    VALUE interruption = owner->interruption;
    owner->interruption = Qnil;
    bool external = !NIL_P(owner->external);
    if (!NIL_P(interruption) && (external || !owner->killed)) rb_exc_raise(interruption);
    if (external) { // its library cancels it: it raises its own exception, now or later (external_put_off)
        rb_funcall(owner->external, rb_intern("stop"), 0);
        return;
    }
    VALUE exception = owner_cancellation(owner);
    if (owner->killed && owner->fiber == rb_fiber_current()) rb_exc_fatal(exception);
    rb_exc_raise(exception);
}

void owner_raise_pending(struct wait_owner *owner)
{
    if (owner->held || (!owner->cancel_pending && !owner->chain->innermost)) return;
    owner_raise_cancellation(owner);
    struct scope *due = scope_due(owner->chain, recent(owner));
    if (!due) return;
    renew_grace(owner);
    scope_raise(due);
}

void owner_raise_deferred(struct wait_owner *owner)
{
    if (!owner->deferred) return;
    owner->deferred = false;
    owner_raise_pending(owner);
}

// ---- deadlines, by the loop's timers

static void expire_scope(struct timer *timer)
{
    struct scope *scope = (struct scope *)timer; // its first member
    struct wait_owner *owner = scope->chain->owner;
    const struct loop_wait *wait = owner->wait;
    if (wait && wait->state == WAIT_PARKED && wait->kind == WAIT_DESCRIPTOR) {
        scope->descriptor = wait->descriptor;
        scope->events = wait->events;
    }
    scope_expire(scope);
    // Not behind a shield, where the wait goes on. Whether another fiber's scope binds is a question to Ruby, during
    // which an interrupt may arrive: the waiting fiber asks it, not this one, which only polls for all.
    if (owner->chain->other_fibers || owner_pending(owner)) loop_interrupt_owner(owner->loop, owner);
}

void owner_arm_scope(struct scope *scope)
{
    scope->timer.expire = expire_scope;
    timer_add(&scope->chain->owner->loop->timers, &scope->timer, scope->at);
}

void owner_arm_deadlines(struct wait_owner *owner)
{
    if (!owner->chain->owner) return; // a thread's scope: the helper watches it
    for (struct scope *scope = owner->chain->innermost; scope; scope = scope->outer) {
        if (scope->timer.index && !owner->chain->other_fibers) break; // then the outer scopes have theirs, too
        if (!scope->timer.index && !scope->expired && scope->at != DEADLINE_NEVER) owner_arm_scope(scope);
        if (scope_hides_outer(scope)) break;
    }
}
