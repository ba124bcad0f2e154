#include "loop/internals.h"

#include "budget.h"
#include "loop/callers.h"
#include "loop/early_wake.h"
#include "os/fork.h"

#include <errno.h>
#include <poll.h>
#include <sys/stat.h>

// ---- parking

// What park leaves behind for its caller; the record itself is recycled by then.
struct parking {
    struct loop *loop;
    struct loop_wait *wait;
    int64_t span;
    short revents;
    int error;
    bool completed;
    bool keeps_result;            // the turn is given away after an operation whose result is not to be lost
    struct loop_wait *outer_wait; // of the same task: a trap handler that waits
    VALUE start;                  // a fiber to run at once, or 0; its block gets …
    VALUE argument;               // … this
    void (*enter)(struct loop *loop, void *argument); // in place of `start`: switches to another fiber; or NULL
    void *enter_argument;
    VALUE exception; // was raised in the waiting fiber by somebody, or 0
    VALUE blocker;   // of a WAIT_BLOCK: what for, or 0
    bool timed_out;
    unsigned forks; // where the record belongs
};

static void expire_wait(struct timer *timer)
{
    struct loop_wait *wait = (struct loop_wait *)timer; // its first member
    wait->timed_out = true;
    loop_wake(wait->owner->loop, wait);
}

// What is pending is not raised in the wait for a Mutex that is taken again: it stays pending.
static void prepare_wait(const struct parking *parking)
{
    const struct loop *loop = parking->loop;
    struct wait_owner *owner = loop->owner;
    if (parking->blocker && owner_pending(loop, owner) && called_by_relock(parking->blocker)) {
        owner->deferred = true;
    } else {
        loop->owners->raise_pending(owner);
    }
    loop->owners->arm_deadlines(owner);
}

static void begin(struct parking *parking, enum wait_kind kind)
{
    struct loop *loop = parking->loop;
    // Not in place of a start: the task that is to be started would be lost. Nor of what an operation has taken.
    bool only_waits = !parking->start && !parking->enter && !parking->keeps_result;
    if (only_waits && (loop->owner->cancel_pending || *loop->owner->innermost)) prepare_wait(parking);
    parking->forks = fork_count();
    parking->wait = wait_acquire(&loop->waits, kind);
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

// A turn of an owner's own fiber is found through the owner: turns are to cost next to nothing.
static void index_wait(struct loop *loop, struct loop_wait *wait)
{
    if (wait->kind == WAIT_TURN && wait->fiber == wait->owner->fiber) return;
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
        int error = descriptor_arm(loop, wait);
        if (error) {
            wait->revents = error == EPERM ? wait->events : 0;
            wait->error = error == EPERM ? 0 : error;
            wait->completed = true;
            return Qnil;
        }
    }
    index_wait(loop, wait);
    if (parking->span != DEADLINE_NEVER)
        timer_add(&loop->timers, &wait->timer, deadline_after(deadline_now(), parking->span));
    if (wait->kind == WAIT_TURN) {
        if (parking->start || parking->enter) {
            ready_push_starter(loop, wait);
        } else {
            ready_push(loop, wait);
        }
    }
    // Last of all before the fiber parks: whatever came before may have let another thread run, which unblocked the fiber.
    if (loop->early_wakes && early_wake_ends(loop, wait)) {
        wait->completed = true;
        return Qnil;
    }
    if (parking->start) {
        loop->since_poll++;
        switch_to(loop, parking->start, parking->argument);
    } else if (parking->enter) {
        loop->since_poll++;
        parking->enter(loop, parking->enter_argument);
    }
    switch_away(loop, wait);
    return Qnil;
}

// Whether something else than another fiber of this loop may end such a wait.
static bool wakeable(enum wait_kind kind)
{
    return kind != WAIT_BLOCK && kind != WAIT_IDLE;
}

// However the fiber got here: nothing may point to the record any more.
static void detach(struct loop *loop, struct loop_wait *wait)
{
    if (wait->timer.place) timer_cancel(&loop->timers, &wait->timer);
    if (wait->state == WAIT_READY && wait->kind != WAIT_MEMBER) ready_remove(loop, wait);
    if (wait->descriptor >= 0) {
        descriptor_unlink(loop, wait);
        if (wait->armed) loop->backend->disarm(loop->backend_state, wait, descriptor_waits(loop, wait->descriptor));
        wait->armed = false;
    }
    unindex_wait(loop, wait);
}

static VALUE park_end(VALUE argument)
{
    struct parking *parking = (struct parking *)argument;
    struct loop *loop = parking->loop;
    struct loop_wait *wait = parking->wait;
    if (parking->forks != fork_count()) { // in a child: the record is of the parent's
        loop->owner = wait->owner;
        wait->owner->wait = parking->outer_wait;
        return Qnil;
    }
    detach(loop, wait);
    parking->timed_out = wait->timed_out;
    parking->revents = wait->revents;
    parking->error = wait->error;
    parking->completed = wait->completed;
    parking->exception = wait->exception;
    loop->owner = wait->owner;
    wait->owner->wait = parking->outer_wait;
    if (wakeable(wait->kind)) loop->wakeable--;
    wait_release(&loop->waits, wait);
    return Qnil;
}

// Raises what was sent to the task only if the wait did not complete: whoever completed it (a Mutex that was handed
// over, a byte that arrived) must not be forgotten. The next wait raises then.
static void park(struct parking *parking)
{
    struct loop *loop = parking->loop;
    struct loop_wait *wait = parking->wait;
    parking->outer_wait = wait->owner->wait;
    wait->owner->wait = wait;
    if (wakeable(wait->kind)) loop->wakeable++;
    rb_ensure(park_body, (VALUE)parking, park_end, (VALUE)parking);
    if (parking->completed) return;
    if (parking->exception) rb_exc_raise(parking->exception);
    struct wait_owner *owner = loop->owner;
    if (!owner->cancel_pending && !*owner->innermost) return;
    if (parking->blocker && owner_pending(loop, owner) && called_by_relock(parking->blocker)) {
        owner->deferred = true; // and looks again for its Mutex
    } else {
        loop->owners->raise_pending(owner);
    }
}

bool loop_block(struct loop *loop, VALUE blocker, int64_t span)
{
    struct parking parking = {.loop = loop, .span = span, .blocker = blocker};
    begin(&parking, WAIT_BLOCK);
    park(&parking);
    return parking.completed;
}

bool loop_sleep(struct loop *loop, int64_t span)
{
    struct parking parking = {.loop = loop, .span = span};
    begin(&parking, WAIT_SLEEP);
    park(&parking);
    return parking.completed;
}

void loop_yield(struct loop *loop)
{
    // With nobody else ready, what is due is the look at the kernel.
    if (!loop->ready_head && !poll_due(loop) && !owner_pending(loop, loop->owner)) {
        loop->since_poll++;
        return;
    }
    loop_start(loop, 0, Qnil);
}

static bool budget_left(struct loop *loop, size_t bytes)
{
    loop->bytes_since_switch += bytes;
    return ++loop->since_switch < BUDGET_OPERATIONS && loop->bytes_since_switch < BUDGET_BYTES;
}

void loop_spend(struct loop *loop, size_t bytes)
{
    if (budget_left(loop, bytes)) return;
    poll_if_late(loop);
    loop_yield(loop);
}

// What is ready always: no peer decides whether the task waits for it.
static bool never_waits(int descriptor)
{
    struct stat status;
    return descriptor >= 0 && fstat(descriptor, &status) == 0 && (S_ISREG(status.st_mode) || S_ISBLK(status.st_mode));
}

void loop_admit(struct loop *loop, int descriptor)
{
    struct wait_owner *owner = loop->owner;
    if (!owner->cancel_pending && !*owner->innermost) return;
    if (!loop->owners->interrupted(owner)) {
        owner->admitted = 0;
    } else if (owner->admitted < ADMITTED_AT_MOST) {
        owner->admitted++;
    } else if (!never_waits(descriptor)) {
        loop->owners->raise_pending(owner);
    }
}

void loop_admit_start(struct loop *loop)
{
    loop->owners->raise_cancellation(loop->owner);
    loop_admit(loop, -1);
}

void loop_give_turn(struct loop *loop, size_t bytes)
{
    if (budget_left(loop, bytes)) return;
    poll_if_late(loop);
    if (!loop->ready_head && !poll_due(loop)) {
        loop->since_poll++;
        return;
    }
    struct parking parking = {.loop = loop, .span = DEADLINE_NEVER, .keeps_result = true};
    begin(&parking, WAIT_TURN);
    parking.wait->completed = true;
    park(&parking);
}

void loop_use_budget(struct loop *loop)
{
    loop_admit(loop, -1);
    loop_give_turn(loop, 0);
}

static int look(struct loop *loop, int descriptor, short events)
{
    struct pollfd now = {.fd = descriptor, .events = events};
    loop->statistics.system_calls++;
    int count = poll(&now, 1, 0);
    if (count < 0) return errno == EINTR ? 0 : -errno;
    if (now.revents & POLLNVAL) return -EBADF;
    return descriptor_answer(events, now.revents);
}

void loop_raise_wait_error(int error, const char *doing)
{
    if (error == ECANCELED) rb_raise(rb_eIOError, "stream closed in another thread");
    rb_syserr_fail(error, doing);
}

int loop_wait_descriptor(struct loop *loop, int descriptor, short events, int64_t span)
{
    // What is asked for writing is nearly always there (a connect on loopback, a socket buffer with room), and a zero
    // timeout asks for the truth now. Where something is pending for the task a wait fails, but only if it is needed.
    if (span == 0 || (events & POLLOUT) || owner_pending(loop, loop->owner)) {
        int found = look(loop, descriptor, events);
        if (found || span == 0) {
            loop_use_budget(loop);
            return found;
        }
    }
    deadline_t deadline = span == DEADLINE_NEVER ? DEADLINE_NEVER : deadline_after(deadline_now(), span);
    for (;;) {
        struct parking parking = {.loop = loop, .span = span};
        begin(&parking, WAIT_DESCRIPTOR);
        parking.wait->descriptor = descriptor;
        parking.wait->events = events;
        park(&parking);
        if (parking.error) return -parking.error;
        if (parking.completed) return parking.revents;
        if (parking.timed_out) return 0;
        // Woken for an exception that a trap handler's own wait took: zero would mean that the time is over.
        if (deadline != DEADLINE_NEVER) {
            span = deadline - deadline_now();
            if (span <= 0) return 0;
        }
    }
}

// ---- several descriptors at once, and what native threads find out

struct selection {
    struct parking parking;
    struct pollfd *asked;
    struct loop_wait **members;
    size_t count;
    size_t made;
    bool parked;
    void (*expect)(void *argument, uint64_t key);
    void *argument;
};

static VALUE selection_body(VALUE argument)
{
    struct selection *selection = (struct selection *)argument;
    struct loop *loop = selection->parking.loop;
    for (size_t i = 0; i < selection->count; i++) {
        struct pollfd *asked = &selection->asked[i];
        struct loop_wait *member = wait_acquire(&loop->waits, WAIT_MEMBER);
        selection->members[selection->made++] = member;
        member->parent = selection->parking.wait;
        member->descriptor = asked->fd;
        member->events = asked->events;
        int error = descriptor_arm(loop, member);
        if (error) descriptor_fire(loop, member, error == EPERM ? asked->events : 0, error == EPERM ? 0 : error);
    }
    selection->parked = true;
    if (selection->expect) selection->expect(selection->argument, wait_key(selection->parking.wait));
    park(&selection->parking);
    return Qnil;
}

static VALUE selection_end(VALUE argument)
{
    struct selection *selection = (struct selection *)argument;
    struct loop *loop = selection->parking.loop;
    if (selection->parking.forks != fork_count()) return Qnil; // in a child: the records are of the parent's
    for (size_t i = 0; i < selection->made; i++) {
        struct loop_wait *member = selection->members[i];
        selection->asked[i].revents = member->revents;
        if (member->error && !selection->parking.error) selection->parking.error = member->error;
        detach(loop, member);
        wait_release(&loop->waits, member);
    }
    if (!selection->parked) {
        detach(loop, selection->parking.wait);
        wait_release(&loop->waits, selection->parking.wait);
    }
    return Qnil;
}

int loop_wait_any_or_note(struct loop *loop, struct pollfd *descriptors, size_t count, int64_t span,
                          void (*expect)(void *argument, uint64_t key), void *argument)
{
    VALUE holder;
    struct selection selection = {.parking = {.loop = loop, .span = span},
                                  .asked = descriptors,
                                  .count = count,
                                  .expect = expect,
                                  .argument = argument};
    selection.members = ALLOCV_N(struct loop_wait *, holder, count + 1);
    begin(&selection.parking, count ? WAIT_SELECT : WAIT_NATIVE);
    rb_ensure(selection_body, (VALUE)&selection, selection_end, (VALUE)&selection);
    ALLOCV_END(holder);
    if (selection.parking.error) return -selection.parking.error;
    int ready = 0;
    for (size_t i = 0; i < count; i++)
        ready += descriptors[i].revents != 0;
    return ready;
}

int loop_wait_any(struct loop *loop, struct pollfd *descriptors, size_t count, int64_t span)
{
    return loop_wait_any_or_note(loop, descriptors, count, span, NULL, NULL);
}

// ---- starting fibers, and keeping idle ones

void step_aside(struct loop *loop, void (*enter)(struct loop *loop, void *argument), void *argument)
{
    struct parking parking = {.loop = loop, .span = DEADLINE_NEVER, .enter = enter, .enter_argument = argument};
    begin(&parking, WAIT_TURN);
    parking.wait->completed = true;
    park(&parking);
}

void loop_start(struct loop *loop, VALUE fiber, VALUE argument)
{
    struct parking parking = {.loop = loop, .span = DEADLINE_NEVER, .start = fiber, .argument = argument};
    begin(&parking, WAIT_TURN);
    parking.wait->completed = true;
    park(&parking);
}

VALUE loop_continue_idle(struct loop *loop, struct wait_owner *owner)
{
    struct loop_wait *worker = loop->idle;
    VALUE fiber = worker->fiber;
    struct parking parking = {.loop = loop, .span = DEADLINE_NEVER, .start = fiber, .argument = Qnil};
    begin(&parking, WAIT_TURN);
    parking.wait->completed = true;
    loop->idle = worker->next;
    loop->idle_count--;
    worker->next = NULL;
    worker->owner = owner;
    worker->state = WAIT_RUNNING;
    park(&parking);
    return fiber;
}

static VALUE idle_body(VALUE argument)
{
    struct parking *parking = (struct parking *)argument;
    struct loop *loop = parking->loop;
    parking->wait->next = loop->idle;
    loop->idle = parking->wait;
    loop->idle_count++;
    switch_away(loop, parking->wait);
    return Qnil;
}

static VALUE idle_end(VALUE argument)
{
    struct parking *parking = (struct parking *)argument;
    struct loop *loop = parking->loop;
    if (parking->forks != fork_count()) return Qnil; // in a child: the record is of the parent's
    if (parking->wait->state == WAIT_PARKED) {       // somebody raised in it
        struct loop_wait **link = &loop->idle;
        while (*link != parking->wait)
            link = &(*link)->next;
        *link = parking->wait->next;
        loop->idle_count--;
    }
    wait_release(&loop->waits, parking->wait);
    return Qnil;
}

void loop_idle(struct loop *loop)
{
    struct parking parking = {.loop = loop, .forks = fork_count()};
    loop->owner = loop->system; // its own task is over
    parking.wait = wait_acquire(&loop->waits, WAIT_IDLE);
    parking.wait->owner = loop->system;
    parking.wait->fiber = rb_fiber_current();
    rb_ensure(idle_body, (VALUE)&parking, idle_end, (VALUE)&parking);
}
