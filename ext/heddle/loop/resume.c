// How other fibers and threads act on a waiting fiber: wake it so that it raises what is pending, raise in it, kill it.
#include "loop/internals.h"

#include "loop/callers.h"
#include "loop/interrupt.h"
#include "loop/start.h"
#include "loop/wake.h"

static struct loop_wait *wait_in(const struct fiber_index *index, VALUE fiber)
{
    struct loop_wait *found = NULL;
    uint32_t from = FIBER_INDEX_START;
    for (struct loop_wait *wait; (wait = fiber_index_next(index, fiber, &from));) {
        if (wait->state != WAIT_PARKED && wait->state != WAIT_READY) continue;
        // A fiber may have several waits: the innermost is its owner's `wait`.
        if (!found || wait->owner->wait == wait) found = wait;
    }
    return found;
}

// Idle worker fibers have no index: each start and end of a task would pay for a rare question. There are at most 4096
// of them (IDLE_LIMIT in task/worker_fiber.c), which takes 7 microseconds.
static struct loop_wait *idle_wait(const struct loop *loop, VALUE fiber)
{
    struct loop_wait *worker = loop->idle;
    while (worker && worker->fiber != fiber)
        worker = worker->next;
    return worker;
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

// For a fiber that has resumed another fiber, which waits now, returns the other fiber's wait, as Fiber#raise does
// since Ruby 3.3.
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

// ---- switching to a fiber that waits

static void enter_dispatched(struct loop *loop, void *argument)
{
    struct loop_wait *wait = argument;
    if (wait->state == WAIT_READY) ready_remove(loop, wait);
    wait->state = WAIT_RUNNING;
    switch_to(loop, wait->fiber, Qnil);
}

bool loop_resume(struct loop *loop, VALUE fiber, VALUE value, enum resume_order order)
{
    struct loop_wait *wait = fiber == rb_fiber_current() ? NULL : own_wait_of_fiber(loop, fiber);
    if (!wait || wait->kind == WAIT_IDLE) return false;
    wait->value = value;
    if (wait->kind <= WAIT_SLEEP) wait->completed = true; // a wait for a descriptor goes on
    step_aside(loop, enter_dispatched, wait, order);
    return true;
}

// ---- raising

static bool waits_for_mutex(const struct loop_wait *wait)
{
    return wait->kind == WAIT_BLOCK && is_mutex(wait->blocker);
}

// The fiber raises the exception itself: only it can tell whether it reacquires a Mutex, and since Ruby 4.0
// rb_fiber_raise replaces the exception's cause by the caller's $!.
static void raise_at_once(struct loop *loop, struct loop_wait *wait, VALUE exception, enum resume_order order)
{
    wait->exception = exception;
    wait->at_once = true;
    step_aside(loop, enter_dispatched, wait, order);
}

bool loop_raise(struct loop *loop, VALUE fiber, VALUE exception, enum resume_order order)
{
    struct loop_wait *wait = fiber == rb_fiber_current() ? NULL : wait_of_fiber(loop, fiber);
    if (!wait) return false;
    // The worker fiber's task has ended: an exception raised here would surface in whichever fiber the worker fiber's
    // end returns to.
    if (wait->kind == WAIT_IDLE)
        rb_raise(rb_path2class("FiberError"), "dead fiber called: its task has ended, so nothing can be raised in it");
    raise_at_once(loop, wait, exception, order);
    return true;
}

bool loop_kill(struct loop *loop, VALUE fiber)
{
    struct loop_wait *wait = fiber == rb_fiber_current() ? NULL : own_wait_of_fiber(loop, fiber);
    if (!wait || !waits_for_mutex(wait)) return false;
    raise_at_once(loop, wait, LOOP_KILL, RESUME_SOON);
    return true;
}

bool loop_interrupt_fiber(struct loop *loop, VALUE fiber, VALUE exception)
{
    struct loop_wait *wait = wait_of_fiber(loop, fiber);
    if (!wait || wait->kind == WAIT_IDLE) return false;
    wait->exception = exception;
    loop_wake(loop, wait);
    if (loop->poller.wakeup) wakeup_nudge(loop->poller.wakeup);
    return true;
}

void loop_raise_at_root(struct loop *loop, VALUE exception)
{
    struct loop_wait *wait = loop->root->wait;
    if (!wait || wait->exception) return;
    wait->exception = exception;
    wait->at_once = true;
    if (wait->state == WAIT_READY) {
        ready_remove(loop, wait);
        wait->state = WAIT_PARKED;
    }
    if (wait->state == WAIT_PARKED) ready_push_first(loop, wait);
}

void loop_interrupt_owner_now(struct loop *loop, struct wait_owner *owner)
{
    // A fiber whose wait has completed, or that is behind a shield, raises at its next wait.
    struct loop_wait *wait = owner->wait;
    if (!wait || wait->completed || wait->state == WAIT_RUNNING || !owner_pending(owner)) return;
    step_aside(loop, enter_dispatched, wait, RESUME_SOON);
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
    if (loop->measuring) measure_start(loop);
    rb_yield_values(0);
}

void loop_step_aside(struct loop *loop)
{
    step_aside(loop, enter_block, NULL, RESUME_SOON);
}
