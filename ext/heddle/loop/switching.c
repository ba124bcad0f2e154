// Whose turn it is: the ready queue, when to poll the kernel, and the switch from one fiber to the next.
#include "loop/internals.h"

#include "loop/wake.h"
#include "os/fork.h"
#include "os/simulated.h"

#include <ruby/thread.h>

enum {
    POLL_OFTEN = 4,           // dispatches between polls, while polls find something and few fibers are ready
    POLL_SELDOM = 64,         // … while polls find nothing
    POLL_AT_MOST_AFTER = 256, // … however many fibers are ready
    CLOCK_EVERY = 4,          // dispatches between two readings of the clock
    STARTS_AT_MOST = 64,      // starts in a row before all other fibers have a turn
    SWITCHES_A_START = 4,     // turns of other fibers after each start, while polls find something
};

static const int64_t MILLISECOND = 1000000;
static const int64_t LONG_POLL = 50000;    // nanoseconds beyond which a poll's cost counts
static const int64_t SHORT_WAIT = 5000000; // nanoseconds that the loop may sleep after the last start
static const int64_t FIRST_LOOK = 500000000;

// ---- ready queue

static void ready_insert(struct loop *loop, struct loop_wait *wait, struct loop_wait *before)
{
    HEDDLE_ASSERT(wait->state == WAIT_PARKED && wait->fiber);
    wait->state = WAIT_READY;
    wait_list_insert(&loop->ready, wait, before);
    loop->ready_count++;
    if (loop->measuring) measure_ready(loop, wait);
}

void ready_push(struct loop *loop, struct loop_wait *wait)
{
    ready_insert(loop, wait, NULL);
}

void ready_push_first(struct loop *loop, struct loop_wait *wait)
{
    ready_insert(loop, wait, loop->ready.head);
}

// Whether the turns of all fibers that are in flight take longer than one of them waits (Little's law). With fewer, the
// loop would sleep after the last start, through a wait that had too little to fill it.
static bool enough_in_flight(const struct loop *loop)
{
    return (double)(loop->wakeable + loop->ready_count) * (double)loop->turn_cost * loop->waits >= loop->squared_waits;
}

// Where to put a fiber that has started another. At the end of the queue, a fiber among many busy ones would wait a
// whole round for each start: an accept loop would never catch up. Always at the front, the fiber would start thousands
// of tasks before one of them is finished, and a waiting task costs memory. So while polls find something and enough is
// in flight, SWITCHES_A_START other fibers have their turn after each start.
void ready_push_starter(struct loop *loop, struct loop_wait *wait)
{
    struct loop_wait *before = loop->ready.head;
    bool enough = enough_in_flight(loop);
    int turns = 0;
    if (enough && loop->found) {
        turns = SWITCHES_A_START;
    } else if (++loop->starts >= STARTS_AT_MOST) {
        turns = enough ? INT_MAX : STARTS_AT_MOST / 4;
    } else {
        wait->starter = true;
    }
    for (; before && turns > 0; turns--)
        before = before->next;
    ready_insert(loop, wait, before);
}

void ready_remove(struct loop *loop, struct loop_wait *wait)
{
    wait_list_remove(&loop->ready, wait);
    loop->ready_count--;
}

void loop_wake(struct loop *loop, struct loop_wait *wait)
{
    if (wait->state != WAIT_PARKED) return;
    if (wait->kind == WAIT_MEMBER) {
        wait->state = WAIT_READY; // not in the ready queue: a member has no fiber
        wait->parent->completed = true;
        loop_wake(loop, wait->parent);
    } else {
        ready_push(loop, wait);
    }
}

void loop_interrupt_owner(struct loop *loop, struct wait_owner *owner)
{
    // Several fibers share the owner `system` and end their waits in any order: its `wait` may be over.
    if (owner->wait && owner != loop->system) loop_wake(loop, owner->wait);
    if (loop->poller.wakeup) wakeup_nudge(loop->poller.wakeup);
}

// ---- polling

// Every fiber waits for another one, and no timer, descriptor, child process or thread can wake any of them: raises an
// error where the loop was started. Returns whether it did, or whether a fiber has run instead.
static bool report_deadlock(struct loop *loop)
{
    if (!loop->deadlock_error || !loop->root->wait || atomic_load(&loop->poller.wakeup->notes)) return false;
    VALUE error = loop->deadlock_error(loop);
    if (error == Qundef) return true;
    if (NIL_P(error) || !loop->root->wait || loop->ready.head) return false;
    loop->root->wait->exception = error;
    loop_wake(loop, loop->root->wait);
    return true;
}

// Nanoseconds until another look for a deadlock: the threads that could have woken a fiber may have ended meanwhile.
// Doubles with each look, so that a loop that waits for long, for work from other threads, is hardly ever woken.
static int64_t until_next_look(struct loop *loop)
{
    if (deadline_simulated()) return DEADLINE_NEVER;
    loop->look_after = loop->look_after ? 2 * loop->look_after : FIRST_LOOK;
    return loop->look_after;
}

// Polling again before all fibers that are ready now had their turn gains nothing: what the poll finds queues behind
// them.
static uint32_t turns_until_poll(const struct loop *loop)
{
    if (loop->ready_count < POLL_OFTEN) return POLL_OFTEN;
    return loop->ready_count < POLL_AT_MOST_AFTER ? loop->ready_count : POLL_AT_MOST_AFTER;
}

// Whether the caller of loop_attend has an interrupt that it masks: Ruby does not raise it, so the caller checks when
// its wait ends. Called before a poll, when nothing is due. Behind a poll a trap could be due: Ruby would run its
// handler at the end of this call, and what the handler raises in this thread would be queued after the answer.
static bool masked_interrupt(const struct loop *loop)
{
    return RTEST(rb_funcall(loop->thread, rb_intern("pending_interrupt?"), 0));
}

// A poll during which another process had the processor must not pass for a long one: the cost grows step by step.
static void note_cost(struct loop *loop, int64_t measured)
{
    int64_t most = 2 * loop->poll_cost + LONG_POLL / 5;
    loop->poll_cost = measured < most ? measured : most;
}

// What enough_in_flight asks, once a poll.
static void note_turns(struct loop *loop, int64_t busy)
{
    uint64_t turns = loop->statistics.switches - loop->switches_at_poll;
    loop->switches_at_poll = loop->statistics.switches;
    if (!turns) return;
    int64_t cost = busy / (int64_t)turns, most = 2 * loop->turn_cost + LONG_POLL;
    loop->turn_cost += ((cost < most ? cost : most) - loop->turn_cost) / 8;
}

// The mean weighted by length: how long those wait that are in flight. Of a short wait for a connect and a long one for
// the answer, the plain mean is half of the long one.
static void note_wait(struct loop *loop, double length)
{
    double most = 16 * loop->waits + LONG_POLL; // one late answer does not make waits long
    length = length > SHORT_WAIT ? length - SHORT_WAIT : 0;
    if (length > most) length = most;
    loop->waits += (length - loop->waits) / 8;
    loop->squared_waits += (length * length - loop->squared_waits) / 8;
}

// Polls the kernel, timers and other threads' notes. With nothing ready, sleeps without the GVL until one of them has
// something or an interrupt comes; RB_NOGVL_INTR_FAIL leaves that interrupt pending, for switch_away to deliver.
// Returns false when Ruby refused to release the GVL: rb_nogvl refuses for any flag of the running fiber (due
// finalizers, the end of a time slice). rb_thread_interrupted knows only two of these flags, and none of them clears
// before Ruby code runs on that fiber, so another fiber must do the waiting. Not inlined: its frame must not lie
// beneath every waiting fiber, as switch_away's does.
RBIMPL_ATTR_NOINLINE()
static bool poll_kernel(struct loop *loop)
{
    if (!loop->poller.backend_state)
        rb_raise(heddle_eSchedulerClosed, "the scheduler was closed while a fiber waited in it");
    if (loop->attending && !loop->attends_polls && masked_interrupt(loop)) loop_wake(loop, loop->attending);
    deadline_t now = deadline_now(), until = DEADLINE_NEVER;
    int64_t timeout = 0;
    if (!loop->ready.head) {
        deadline_t next = timer_next(&loop->timers);
        bool stands_still = next == DEADLINE_NEVER && loop->wakeable == 0;
        if (stands_still && report_deadlock(loop)) return true;
        // report_deadlock may let other threads run, and one of them may have woken a fiber.
        if (stands_still && !loop->ready.head) next = deadline_after(now, until_next_look(loop));
        if (!loop->ready.head) timeout = next == DEADLINE_NEVER ? DEADLINE_NEVER : next > now ? next - now : 0;
        until = next;
    }
    loop->statistics.polls++;
    if (loop->last_poll) note_turns(loop, now - loop->last_poll);
    if (loop->measuring) measure_poll(loop, now, timeout > 0);
    if (timeout > 0) loop->sleeps_since = now;
    int polled = poller_poll(&loop->poller, timeout, until);
    loop->sleeps_since = 0;
    // In a simulation everything happens in this thread: nothing can happen any more before the next timer.
    bool stuck = polled == 0 && timeout > 0 && deadline_simulated() && !deadline_move(until);
    deadline_t after = deadline_now();
    if (timeout > 0) {
        loop->statistics.sleeps++;
        loop->last_sleep = after - now;
        loop->statistics.idle += loop->last_sleep;
    } else {
        loop->last_sleep = 0;
        note_cost(loop, after - now);
    }
    int found = (polled > 0 ? polled : 0) + (int)timer_expire(&loop->timers, after);
    if (loop->measuring) measure_polled(loop, now, deadline_now(), timeout > 0);
    loop->found = found > 0;
    if (found && loop->ready.tail) note_wait(loop, (double)(after - loop->ready.tail->since));
    if (found) {
        loop->poll_every = turns_until_poll(loop);
        loop->look_after = 0;
    } else {
        loop->statistics.empty_polls++;
        if (loop->poll_every < POLL_SELDOM) loop->poll_every *= 2;
    }
    loop->since_poll = 0;
    loop->last_poll = after;
    if (polled < 0) return false;
    if (stuck) report_deadlock(loop);
    // An interrupt that was raised before may have ended the poll: its signal may come late, and twice.
    if (loop->attending && loop->attends_polls && (loop->ready.head || timeout == 0 || masked_interrupt(loop)))
        loop_wake(loop, loop->attending);
    return true;
}

static bool poll_late(const struct loop *loop)
{
    return deadline_recently() - loop->last_poll >= MILLISECOND;
}

// A poll(2) of thousands of descriptors takes longer than all fibers between two polls: it must leave them half of the
// time.
bool poll_due(const struct loop *loop)
{
    if (deadline_simulated()) return simulated_draw(POLL_OFTEN) == 0;
    if (loop->since_poll < loop->poll_every && (loop->since_poll % CLOCK_EVERY || !poll_late(loop))) return false;
    return loop->poll_cost < LONG_POLL || deadline_now() - loop->last_poll >= loop->poll_cost;
}

void poll_if_late(struct loop *loop)
{
    if (poll_late(loop)) loop->since_poll = loop->poll_every;
}

// ---- switching

void switch_to(struct loop *loop, VALUE fiber, VALUE argument)
{
    loop->statistics.switches++;
    rb_fiber_transfer(fiber, 1, &argument);
    // After switching back, rb_fiber_transfer reads the fiber that it had switched to, through a plain pointer: a fiber
    // that has ended meanwhile must not be collected before.
    RB_GC_GUARD(fiber);
}

// A trap handler may fork, and the child may return from the handler into one of the parent's waits, which nothing can
// end in the child.
static void check_interrupts(struct loop *loop, struct loop_wait *self)
{
    struct loop_wait *before = loop->handling;
    loop->handling = self; // park_end forgets it after an exception
    if (loop->threads_due) {
        loop->threads_due = false;
        rb_thread_schedule(); // checks interrupts, too
    } else {
        rb_thread_check_ints();
    }
    loop->handling = before;
    if (loop->measuring) measure_interrupted(loop);
    // Masked, or a trap handler ran: the caller looks. Only a poll or a masked interrupt ends a round of the loop:
    // after each round Async's #close stops again what is still waiting in an `ensure`.
    if (self == loop->attending && (!loop->attends_polls || masked_interrupt(loop))) loop_wake(loop, self);
    if (!loop->poller.backend_state || loop->fork_count != fork_count())
        rb_raise(heddle_eSchedulerClosed,
                 "the scheduler was closed, or this process forked, while a fiber waited in it");
}

// Delivers an interrupt that came while a fiber polled. The interrupt goes to the code outside of all tasks, which
// called the outermost run; never to the task that happened to poll. RUBY_VM_CHECK_INTS checks the running fiber's
// flags only; rb_thread_check_ints checks the thread's queue, and must be called on the root's fiber.
static void deliver_interrupt(struct loop *loop, struct loop_wait *self)
{
    struct loop_wait *root = loop->root->wait;
    if (root && root != self && root->fiber != self->fiber) {
        loop->interrupt_due = true;
        switch_to(loop, root->fiber, Qnil);
    } else {
        loop->owner = self->owner;
        check_interrupts(loop, self);
    }
}

static void take_interrupt(struct loop *loop, struct loop_wait *self)
{
    if (!loop->interrupt_due || self != loop->root->wait) return;
    loop->interrupt_due = false;
    loop->owner = self->owner;
    check_interrupts(loop, self);
}

// Tells the owner of a fiber that has ended, if nothing of ours ran at its end.
static void note_ended_fiber(struct loop *loop)
{
    struct wait_owner *owner = loop->owner;
    if (!owner->ends_with_fiber || RTEST(rb_fiber_alive_p(owner->fiber))) return;
    loop->owner = loop->system;
    loop->owners->fiber_ended(owner);
}

// A fiber may also return here without being dispatched: Ruby transfers to the thread's root fiber (or to the innermost
// fiber that resumes another) when a fiber ends, and an interrupt brings the root fiber back.
void switch_away(struct loop *loop, struct loop_wait *self)
{
    loop->since_switch = 0;
    loop->bytes_since_switch = 0;
    if (loop->measuring) measure_park(loop, self);
    for (;;) {
        if (loop->owner->ends_with_fiber) note_ended_fiber(loop);
        take_interrupt(loop, self);
        if (self->state == WAIT_RUNNING) break;
        if (simulated_at_switch) {
            loop->owner = loop->system; // what interrupts the fiber that parks here ends its wait, as any other's
            simulated_at_switch();
        }
        if (loop->threads_due || rb_thread_interrupted(loop->thread)) {
            deliver_interrupt(loop, self);
        } else if (!loop->ready.head || poll_due(loop)) {
            if (!poll_kernel(loop)) deliver_interrupt(loop, self);
        } else {
            struct loop_wait *next = loop->ready.head;
            ready_remove(loop, next);
            loop->since_poll++;
            if (!next->starter) loop->starts = 0;
            next->state = WAIT_RUNNING;
            if (next != self) switch_to(loop, next->fiber, Qnil);
        }
    }
    loop->owner = self->owner;
    if (loop->measuring) measure_resume(loop, self);
}
