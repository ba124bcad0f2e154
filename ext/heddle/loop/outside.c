// What other fibers and threads do to a fiber that waits: raise in it, kill it, transfer to it.
#include "loop/internals.h"

static struct loop_wait *wait_in(const struct fiber_index *index, VALUE fiber)
{
    struct loop_wait *found = NULL;
    uint32_t from = FIBER_INDEX_START;
    for (struct loop_wait *wait; (wait = fiber_index_next(index, fiber, &from));) {
        if (wait->state != WAIT_PARKED && wait->state != WAIT_READY) continue;
        // Of several, the innermost is its owner's.
        if (!found || wait->owner->wait == wait) found = wait;
    }
    return found;
}

// They have no index: each task that starts or ends would pay for what is hardly ever asked.
static struct loop_wait *idle_wait(const struct loop *loop, VALUE fiber)
{
    struct loop_wait *carrier = loop->idle;
    while (carrier && carrier->fiber != fiber)
        carrier = carrier->next;
    return carrier;
}

static struct loop_wait *own_wait_of_fiber(struct loop *loop, VALUE fiber)
{
    struct loop_wait *found = wait_in(&loop->blocked, fiber), *other = wait_in(&loop->parked, fiber);
    if (!found || (other && other->owner->wait == other)) found = other;
    if (found) return found;
    const struct wait_owner *owner = fiber_index_owner(&loop->running, fiber);
    if (!owner) return idle_wait(loop, fiber);
    return owner->wait && owner->wait->fiber == fiber ? owner->wait : NULL;
}

// For a fiber that has resumed another one, which waits now, the wait is that one's, as Fiber#raise has it since
// Ruby 3.3.
static struct loop_wait *wait_of_fiber(struct loop *loop, VALUE fiber)
{
    struct loop_wait *found = own_wait_of_fiber(loop, fiber);
    if (found) return found;
    const struct wait_owner *owner = fiber_index_owner(&loop->running, fiber);
    return owner ? owner->wait : NULL;
}

bool loop_waits(struct loop *loop, VALUE fiber)
{
    return own_wait_of_fiber(loop, fiber);
}

// ---- raising

struct strike {
    VALUE fiber;
    VALUE exception;
};

static void enter_raising(struct loop *loop, void *argument)
{
    struct strike *strike = argument;
    VALUE fiber = strike->fiber;
    loop->statistics.switches++;
    rb_fiber_raise(fiber, 1, &strike->exception);
    RB_GC_GUARD(fiber); // as in switch_to
}

bool loop_raise(struct loop *loop, VALUE fiber, VALUE exception)
{
    struct loop_wait *wait = fiber == rb_fiber_current() ? NULL : wait_of_fiber(loop, fiber);
    if (!wait) return false;
    // To whom it belonged it is dead; what is raised there would come out in whichever fiber its end returns to.
    if (wait->kind == WAIT_IDLE) rb_raise(rb_path2class("FiberError"), "dead fiber called: its task has ended");
    struct strike strike = {.fiber = wait->fiber, .exception = exception};
    step_aside(loop, enter_raising, &strike);
    return true;
}

bool loop_interrupt_fiber(struct loop *loop, VALUE fiber, VALUE exception)
{
    struct loop_wait *wait = wait_of_fiber(loop, fiber);
    if (!wait || wait->kind == WAIT_IDLE) return false;
    wait->exception = exception;
    loop_wake(loop, wait);
    if (loop->wakeup) wakeup_nudge(loop->wakeup);
    return true;
}

void loop_interrupt_owner(struct loop *loop, struct wait_owner *owner)
{
    // Several fibers share the system, and may end their waits in any order: its wait may be over.
    if (owner->wait && owner != loop->system) loop_wake(loop, owner->wait);
    if (loop->wakeup) wakeup_nudge(loop->wakeup);
}

// ---- switching to a fiber that waits

static void enter_dispatched(struct loop *loop, void *argument)
{
    struct loop_wait *wait = argument;
    if (wait->state == WAIT_READY) ready_remove(loop, wait);
    wait->state = WAIT_RUNNING;
    switch_to(loop, wait->fiber, Qnil);
}

void loop_strike(struct loop *loop, struct wait_owner *owner)
{
    // One whose wait has completed, or that is behind a shield, raises at its next wait.
    struct loop_wait *wait = owner->wait;
    if (!wait || wait->completed || wait->state == WAIT_RUNNING || !owner_pending(loop, owner)) return;
    step_aside(loop, enter_dispatched, wait);
}

bool loop_keeps_idle(struct loop *loop, VALUE fiber)
{
    const struct loop_wait *wait = own_wait_of_fiber(loop, fiber);
    return wait && wait->kind == WAIT_IDLE;
}

static void enter_block(struct loop *loop, void *unused)
{
    (void)unused;
    loop->statistics.switches++;
    rb_yield_values(0);
}

void loop_step_aside(struct loop *loop)
{
    step_aside(loop, enter_block, NULL);
}
