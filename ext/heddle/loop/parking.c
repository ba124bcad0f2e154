// How a fiber waits: takes a record, arms timer and descriptor, lets other fibers run, and raises what came meanwhile.
#include "loop/internals.h"

#include "loop/callers.h"
#include "loop/pending_wakeup.h"
#include "loop/interrupt.h"
#include "loop/park.h"
#include "loop/send.h"
#include "loop/wake.h"
#include "os/fork.h"

#include <errno.h>

static void expire_wait(struct timer *timer)
{
    struct loop_wait *wait = (struct loop_wait *)timer; // its first member
    wait->timed_out = true;
    loop_wake(wait->owner->loop, wait);
}

const struct loop_wait *wait_of_timer(const struct timer *timer)
{
    return timer->expire == expire_wait ? (const struct loop_wait *)timer : NULL;
}

// A wait that reacquires a Mutex does not raise what is pending: it stays pending.
static void prepare_wait(const struct parking *parking)
{
    const struct loop *loop = parking->loop;
    struct wait_owner *owner = loop->owner;
    if (parking->blocker && owner_pending(owner) && called_by_reacquire(parking->blocker)) {
        owner->deferred = true;
    } else {
        owner_raise_pending(owner);
    }
    owner_arm_deadlines(owner);
}

void parking_begin(struct parking *parking, enum wait_kind kind)
{
    struct loop *loop = parking->loop;
    // Does not raise in place of a start, because the task to be started would be lost; nor after an operation, whose
    // result would be lost.
    bool only_waits = !parking->enter && !parking->keeps_result;
    if (only_waits && loop->deferred && !(parking->blocker && called_by_reacquire(parking->blocker)))
        loop_raise_deferred(loop);
    if (only_waits && (loop->owner->cancel_pending || loop->owner->chain->innermost)) prepare_wait(parking);
    parking->forks = fork_count();
    parking->wait = wait_acquire(&loop->poller.waits, kind);
    parking->wait->timer.expire = expire_wait;
    parking->wait->owner = loop->owner;
    parking->wait->fiber = rb_fiber_current();
    parking->wait->blocker = parking->blocker;
    parking->wait->since = loop->last_poll;
    loop->statistics.waits[kind]++;
}

static struct fiber_index *index_for(struct loop *loop, const struct loop_wait *wait)
{
    return wait->kind <= WAIT_SLEEP ? &loop->blocked : &loop->parked;
}

// A yield of an owner's own fiber is found through the owner and needs no index: yields must cost next to nothing.
static void index_wait(struct loop *loop, struct loop_wait *wait)
{
    if (wait->kind == WAIT_YIELD && wait->fiber == wait->owner->fiber) return;
    fiber_index_put(index_for(loop, wait), wait);
    wait->indexed = true;
}

static void unindex_wait(struct loop *loop, struct loop_wait *wait)
{
    if (wait->indexed) fiber_index_remove(index_for(loop, wait), wait);
    wait->indexed = false;
}

static VALUE park_body(VALUE argument)
{
    struct parking *parking = (struct parking *)argument;
    struct loop *loop = parking->loop;
    struct loop_wait *wait = parking->wait;

    if (wait->kind == WAIT_DESCRIPTOR) {
        int error = descriptor_arm(&loop->poller, wait);
        if (error) {
            wait->revents = error == EPERM ? wait->events : 0;
            wait->error = error == EPERM ? 0 : error;
            wait->completed = true;
            return Qnil;
        }
    }
    index_wait(loop, wait);
    if (parking->span != DEADLINE_NEVER) {
        parking->until = deadline_after(deadline_now(), parking->span);
        timer_add(&loop->timers, &wait->timer, parking->until);
    }
    if (wait->kind == WAIT_YIELD) {
        switch (parking->order) {
        case RESUME_LAST: ready_push(loop, wait); break;
        case RESUME_SOON: ready_push_starter(loop, wait); break;
        case RESUME_FIRST: ready_push_first(loop, wait); break;
        }
    }
    // The last step before the fiber parks: an earlier step may have let another thread run, which unblocked the fiber.
    if (loop->pending_wakeups && pending_wakeup_ends(loop, wait)) {
        wait->completed = true;
        return Qnil;
    }
    if (parking->enter) {
        loop->since_poll++;
        if (loop->measuring) measure_park(loop, wait);
        parking->enter(loop, parking->enter_argument);
    }
    switch_away(loop, wait);
    return Qnil;
}

// Returns whether something other than a fiber of this loop may end such a wait.
static bool wakeable(enum wait_kind kind)
{
    return kind != WAIT_BLOCK && kind != WAIT_IDLE;
}

void parking_detach(struct loop *loop, struct loop_wait *wait)
{
    if (wait->timer.index) timer_cancel(&loop->timers, &wait->timer);
    if (wait->state == WAIT_READY && wait->kind != WAIT_MEMBER) ready_remove(loop, wait);
    descriptor_leave(&loop->poller, wait);
    unindex_wait(loop, wait);
}

static void forget_send(struct loop *loop, struct loop_send *send)
{
    struct loop_send *before = NULL;
    for (struct loop_send *listed = loop->sends; listed != send; listed = listed->next) {
        if (!listed) return; // in a child of fork, which has cleared the list
        before = listed;
    }
    *(before ? &before->next : &loop->sends) = send->next;
    if (loop->last_send == send) loop->last_send = before;
    loop->poller.descriptors[send->descriptor].sends = false;
}

void send_end(struct loop *loop, struct loop_send *send, bool forked)
{
    if (send->done) return;
    send->done = true;
    forget_send(loop, send);
    if (forked) return;
    loop->statistics.system_calls++;
    send->send(send);
}

static VALUE park_end(VALUE argument)
{
    struct parking *parking = (struct parking *)argument;
    struct loop *loop = parking->loop;
    struct loop_wait *wait = parking->wait;
    if (parking->forks != fork_count()) { // in a child: the record belongs to the parent
        loop->owner = wait->owner;
        wait->owner->wait = parking->outer_wait;
        if (parking->send) send_end(loop, parking->send, true);
        return Qnil;
    }
    parking_detach(loop, wait);
    if (parking->send) send_end(loop, parking->send, false);
    parking->timed_out = wait->timed_out;
    parking->revents = wait->revents;
    parking->error = wait->error;
    parking->completed = wait->completed;
    parking->exception = wait->exception;
    parking->at_once = wait->at_once;
    parking->value = wait->value;
    struct wait_owner *left = loop->owner;
    loop->owner = wait->owner;
    if (wait->measured && loop->measuring) measure_thrown(loop, wait);
    wait->owner->wait = parking->outer_wait;
    wait->owner->chain->waiting = parking->outer_fiber;
    if (wakeable(wait->kind)) loop->wakeable--;
    if (loop->handling == wait) loop->handling = NULL;
    if (loop->attending == wait) loop->attending = NULL;
    if (parking->ended) parking->ended(parking);
    wait_release(&loop->poller.waits, wait);
    // An exception that ended another fiber arrives here.
    if (left->ends_with_fiber && !RTEST(rb_fiber_alive_p(left->fiber))) loop->owners->fiber_ended(left);
    return Qnil;
}

void park(struct parking *parking)
{
    struct loop *loop = parking->loop;
    struct loop_wait *wait = parking->wait;
    parking->outer_wait = wait->owner->wait;
    wait->owner->wait = wait;
    struct scope_chain *chain = wait->owner->chain;
    parking->outer_fiber = chain->forks == parking->forks ? chain->waiting : 0; // not one of a child's parent
    chain->waiting = wait->fiber;
    chain->forks = parking->forks;
    if (wakeable(wait->kind)) loop->wakeable++;
    rb_ensure(park_body, (VALUE)parking, park_end, (VALUE)parking);
    if (parking->exception) {
        bool reacquires = parking->blocker && called_by_reacquire(parking->blocker);
        if (reacquires || parking->at_once || !parking->completed) raise_in_wait(loop, parking->exception, reacquires);
    }
    if (parking->completed) return;
    struct wait_owner *owner = loop->owner;
    if (!owner->cancel_pending && !owner->chain->innermost) return;
    if (parking->blocker && owner_pending(owner) && called_by_reacquire(parking->blocker)) {
        owner->deferred = true; // Ruby then checks its Mutex again
    } else {
        owner_raise_pending(owner);
    }
}

void park_ready(struct parking parking)
{
    parking_begin(&parking, WAIT_YIELD);
    parking.wait->completed = true;
    park(&parking);
}

bool parking_over(struct parking *parking)
{
    if (parking->completed || parking->timed_out || parking->error || parking->exception) return true;
    if (parking->loop->owner->deferred) return true; // Ruby checks its Mutex again
    if (parking->forks != fork_count()) return true; // in a child: nothing can end the wait
    if (parking->span == DEADLINE_NEVER) return false;
    parking->span = parking->until - deadline_now();
    return parking->span <= 0;
}

static bool wait_to_the_end(struct parking parking, enum wait_kind kind)
{
    do {
        parking_begin(&parking, kind);
        park(&parking);
    } while (!parking_over(&parking));
    return parking.completed;
}

bool loop_block(struct loop *loop, VALUE blocker, int64_t span)
{
    return wait_to_the_end((struct parking){.loop = loop, .span = span, .blocker = blocker}, WAIT_BLOCK);
}

bool loop_sleep(struct loop *loop, int64_t span)
{
    return wait_to_the_end((struct parking){.loop = loop, .span = span}, WAIT_SLEEP);
}

void loop_attend(struct loop *loop, int64_t span, bool polls)
{
    struct parking parking = {.loop = loop, .span = span};
    parking_begin(&parking, WAIT_SLEEP);
    loop->attending = parking.wait;
    loop->attends_polls = polls;
    park(&parking);
}

VALUE loop_await_resume(struct loop *loop)
{
    struct parking parking = {.loop = loop, .span = DEADLINE_NEVER};
    parking_begin(&parking, WAIT_BLOCK);
    park(&parking);
    return parking.value ? parking.value : Qnil;
}

void loop_yield(struct loop *loop)
{
    // With no other fiber ready, only a poll can be due.
    if (!loop->ready.head && !poll_due(loop) && !owner_pending(loop->owner)) {
        loop->since_poll++;
        return;
    }
    park_ready((struct parking){.loop = loop, .span = DEADLINE_NEVER, .order = RESUME_LAST});
}

void loop_yield_to_threads(struct loop *loop)
{
    loop->threads_due = true;
    park_ready((struct parking){.loop = loop, .span = DEADLINE_NEVER, .order = RESUME_LAST});
}
