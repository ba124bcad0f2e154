#include "loop/loop.h"

#include "loop/fork.h"
#include "loop/task_class.h"
#include "shims.h"

#include <errno.h>
#include <poll.h>
#include <ruby/thread.h>
#include <string.h>

enum {
    POLL_OFTEN = 4,
    POLL_SELDOM = 64,
    CLOCK_EVERY = 16,    // dispatches after which the clock is read, to poll at least once a millisecond
    COURTESY_EVERY = 64, // operations a fiber may finish without parking
};

static const int64_t MILLISECOND = 1000000;

// ---- life of a loop

void loop_init(struct loop *loop, VALUE self, const struct backend *backend)
{
    memset(loop, 0, sizeof(*loop));
    loop->self = self;
    loop->backend = backend;
    loop->poll_every = POLL_OFTEN;
    loop->root.loop = loop;
    loop->root.block = loop->root.name = loop->root.result = loop->root.fiber = loop->root.waiters = Qnil;
    loop->root.storage = loop->root.run = loop->root.on_end = Qnil;
    loop->root.status = TASK_RUNNING;
    loop->root.scheduler = self;
    loop->task = &loop->root;
    loop->posted = Qnil;
    loop->fork_count = fork_count();
}

static void list_loop(struct loop *loop);
static void unlist_loop(struct loop *loop);

static void close_kernel_side(struct loop *loop, bool forked)
{
    unlist_loop(loop);
    if (loop->backend_state) loop->backend->close(loop->backend_state, forked);
    loop->backend_state = NULL;
    if (loop->wakeup) wakeup_release(loop->wakeup);
    loop->wakeup = NULL;
}

// A child of fork holds copies of everything but has only the fiber that forked: the other fibers will never run here,
// and the kernel's objects are the parent's.
static void abandon_parents_side(struct loop *loop)
{
    close_kernel_side(loop, true);
    // Neither slabs nor tables are freed: records of the parent's fibers point into them.
    memset(&loop->timers, 0, sizeof(loop->timers));
    memset(&loop->waits, 0, sizeof(loop->waits));
    memset(&loop->blocked, 0, sizeof(loop->blocked));
    loop->descriptors = NULL;
    loop->descriptor_capacity = 0;
    loop->ready_head = loop->ready_tail = loop->idle = loop->root.wait = NULL;
    loop->idle_count = 0;
    loop->tasks_head = loop->tasks_tail = NULL;
    loop->task_count = 0;
    loop->drain_fiber = loop->porter = 0;
    loop->posted = Qnil;
    loop->thread = 0;
    loop->fork_count = fork_count();
}

void loop_enter(struct loop *loop)
{
    if (loop->fork_count != fork_count()) abandon_parents_side(loop);
    if (loop->backend_state) {
        if (loop->thread == rb_thread_current()) return;
        rb_raise(heddle_eWrongThread,
                 "this scheduler runs on %" PRIsVALUE
                 ": call Heddle.spawn there, or hand work over through a Heddle::FiberPool",
                 loop->thread);
    }
    if (loop->closed)
        rb_raise(heddle_eSchedulerClosed, "this scheduler is closed: make another with Heddle::Scheduler.new");
    struct wakeup *wakeup = wakeup_new();
    if (!wakeup) rb_sys_fail("heddle: cannot make a descriptor to wake the loop");
    void *state = loop->backend->open(wakeup->reader);
    if (!state) {
        int error = errno;
        wakeup_release(wakeup);
        errno = error;
        rb_sys_fail(loop->backend->name);
    }
    loop->wakeup = wakeup;
    loop->backend_state = state;
    loop->thread = rb_thread_current();
    list_loop(loop);
}

void loop_close(struct loop *loop)
{
    if (loop->fork_count != fork_count()) abandon_parents_side(loop);
    loop->closed = true;
    close_kernel_side(loop, false);
}

static void mark_wait(struct loop_wait *wait, void *unused)
{
    (void)unused;
    // Pins: fiber_index goes by the address. A fiber in a Mutex's or a Queue's list has no other owner than us.
    if (wait->fiber) rb_gc_mark(wait->fiber);
    if (wait->exception) rb_gc_mark(wait->exception);
    if (wait->task && wait->task->self) rb_gc_mark(wait->task->self);
}

void loop_mark(struct loop *loop)
{
    rb_gc_mark(loop->thread);
    if (loop->drain_fiber) rb_gc_mark(loop->drain_fiber);
    if (loop->porter) rb_gc_mark(loop->porter);
    rb_gc_mark(loop->posted);
    if (loop->task->self) rb_gc_mark(loop->task->self);
    task_mark(&loop->root);
    for (struct task *task = loop->tasks_head; task; task = task->next)
        rb_gc_mark(task->self);
    wait_slab_each(&loop->waits, mark_wait, NULL);
}

size_t loop_memsize(const struct loop *loop)
{
    return sizeof(*loop) + wait_slab_size(&loop->waits) + loop->timers.capacity * sizeof(struct timer *) +
           loop->blocked.capacity * sizeof(struct loop_wait *) +
           (size_t)loop->descriptor_capacity * sizeof(struct descriptor);
}

void loop_free(struct loop *loop)
{
    close_kernel_side(loop, loop->fork_count != fork_count());
    timer_heap_free(&loop->timers);
    wait_slab_free(&loop->waits);
    fiber_index_free(&loop->blocked);
    xfree(loop->descriptors);
    loop->descriptors = NULL;
}

// ---- all loops of the process, for what concerns each of them: a descriptor that is closed

static struct loop *live_loops; // under the GVL; other Ractors have no access to these schedulers

static void list_loop(struct loop *loop)
{
    loop->next_live = live_loops;
    live_loops = loop;
}

static void unlist_loop(struct loop *loop)
{
    for (struct loop **link = &live_loops; *link; link = &(*link)->next_live) {
        if (*link != loop) continue;
        *link = loop->next_live;
        return;
    }
}

// ---- ready queue

static void ready_push(struct loop *loop, struct loop_wait *wait)
{
    HEDDLE_ASSERT(wait->state == WAIT_PARKED && wait->fiber);
    wait->state = WAIT_READY;
    wait->next = NULL;
    wait->prev = loop->ready_tail;
    if (loop->ready_tail) {
        loop->ready_tail->next = wait;
    } else {
        loop->ready_head = wait;
    }
    loop->ready_tail = wait;
}

static void ready_remove(struct loop *loop, struct loop_wait *wait)
{
    if (wait->prev) {
        wait->prev->next = wait->next;
    } else {
        loop->ready_head = wait->next;
    }
    if (wait->next) {
        wait->next->prev = wait->prev;
    } else {
        loop->ready_tail = wait->prev;
    }
    wait->next = wait->prev = NULL;
}

// The wait is over, for whatever reason; its fiber runs when its turn comes.
static void wake(struct loop *loop, struct loop_wait *wait)
{
    if (wait->state != WAIT_PARKED) return;
    if (wait->kind == WAIT_MEMBER) {
        wait->state = WAIT_READY; // not in the queue: has no fiber
        wake(loop, wait->parent);
    } else {
        ready_push(loop, wait);
    }
}

// ---- descriptors

static void descriptor_link(struct loop *loop, struct loop_wait *wait)
{
    if (wait->descriptor >= loop->descriptor_capacity) {
        int capacity = loop->descriptor_capacity ? loop->descriptor_capacity : 64;
        while (capacity <= wait->descriptor)
            capacity *= 2;
        REALLOC_N(loop->descriptors, struct descriptor, capacity);
        memset(loop->descriptors + loop->descriptor_capacity, 0,
               (size_t)(capacity - loop->descriptor_capacity) * sizeof(struct descriptor));
        loop->descriptor_capacity = capacity;
    }
    struct descriptor *descriptor = &loop->descriptors[wait->descriptor];
    wait->fd_prev = NULL;
    wait->fd_next = descriptor->waits;
    if (descriptor->waits) descriptor->waits->fd_prev = wait;
    descriptor->waits = wait;
}

static bool descriptor_linked(const struct loop *loop, const struct loop_wait *wait)
{
    return wait->fd_prev || (wait->descriptor >= 0 && wait->descriptor < loop->descriptor_capacity &&
                             loop->descriptors[wait->descriptor].waits == wait);
}

static void descriptor_unlink(struct loop *loop, struct loop_wait *wait)
{
    if (!descriptor_linked(loop, wait)) return;
    if (wait->fd_prev) {
        wait->fd_prev->fd_next = wait->fd_next;
    } else {
        loop->descriptors[wait->descriptor].waits = wait->fd_next;
    }
    if (wait->fd_next) wait->fd_next->fd_prev = wait->fd_prev;
    wait->fd_prev = wait->fd_next = NULL;
}

// An error or a hang-up answers whatever was asked: the next read or write will tell which it is.
static short answer(short asked, short found)
{
    return found & (POLLERR | POLLHUP | POLLNVAL) ? asked : asked & found;
}

static void descriptor_fire(struct loop *loop, struct loop_wait *wait, short revents, int error)
{
    wait->revents = revents;
    wait->error = error;
    wait->completed = true;
    descriptor_unlink(loop, wait);
    wake(loop, wait);
}

// 0 or the errno that the wait ends with at once. May raise NoMemoryError; detach undoes what was done until then.
static int descriptor_arm(struct loop *loop, struct loop_wait *wait)
{
    descriptor_link(loop, wait);
    int error = loop->backend->arm(loop->backend_state, wait, wait);
    if (error == ESTALE) {
        error = 0;
        while (wait->fd_next)
            descriptor_fire(loop, wait->fd_next, 0, EBADF);
    }
    wait->armed = error == 0;
    return error;
}

void loop_descriptor_ready(struct loop *loop, int descriptor, short revents)
{
    if (descriptor >= loop->descriptor_capacity) return;
    struct loop_wait *next;
    for (struct loop_wait *wait = loop->descriptors[descriptor].waits; wait; wait = next) {
        next = wait->fd_next;
        short found = answer(wait->events, revents);
        if (!found) continue;
        wait->armed = false;
        descriptor_fire(loop, wait, found, 0);
    }
    // Those that wait for something else, on the same one-shot registration, ask again.
    for (struct loop_wait *wait = loop->descriptors[descriptor].waits; wait; wait = next) {
        next = wait->fd_next;
        int error = loop->backend->arm(loop->backend_state, wait, loop->descriptors[descriptor].waits);
        if (error) {
            wait->armed = false;
            descriptor_fire(loop, wait, 0, error);
        }
    }
}

void loop_wait_ready(struct loop *loop, uint64_t key, short revents, int error)
{
    struct loop_wait *wait = wait_find(&loop->waits, key);
    if (!wait || !wait->armed) return;
    wait->armed = false;
    if (wait->completed) return; // its descriptor is gone, says somebody else
    descriptor_fire(loop, wait, answer(wait->events, revents), error);
}

static void descriptor_gone(struct loop *loop, int descriptor, int error)
{
    if (descriptor < 0 || descriptor >= loop->descriptor_capacity) return;
    while (loop->descriptors[descriptor].waits) {
        // Only the loop's own thread may talk to the backend: the fiber disarms when it wakes.
        descriptor_fire(loop, loop->descriptors[descriptor].waits, 0, error);
    }
    if (loop->wakeup) wakeup_nudge(loop->wakeup);
}

void loops_descriptor_closing(int descriptor)
{
    for (struct loop *loop = live_loops; loop; loop = loop->next_live) descriptor_gone(loop, descriptor, ECANCELED);
}

// ---- polling

void loop_signalled(struct loop *loop)
{
    wakeup_drain(loop->wakeup);
}

static void expire_wait(struct timer *timer)
{
    struct loop_wait *wait = (struct loop_wait *)timer; // its first member
    wait->timed_out = true;
    wake(wait->loop, wait);
}

struct sleep {
    struct loop *loop;
    int64_t timeout;
    int error;
};

static void *sleep_without_gvl(void *argument)
{
    struct sleep *sleep = argument;
    sleep->error = sleep->loop->backend->wait(sleep->loop->backend_state, sleep->timeout);
    return NULL;
}

static void interrupt_sleep(void *argument)
{
    wakeup_signal(argument);
}

static int take_notes(struct loop *loop)
{
    int count = 0;
    for (struct wakeup_note *note = wakeup_take(loop->wakeup); note; count++) {
        struct wakeup_note *next = note->next;
        struct loop_wait *wait = wait_find(&loop->waits, note->key);
        if (wait && wait->kind == WAIT_NATIVE) {
            wait->completed = true;
            wake(loop, wait);
        }
        note->drop(note);
        note = next;
    }
    return count;
}

// Looks at kernel, timers and other threads' notes. With nothing ready it sleeps, without the GVL, until one of them
// has something or an interrupt comes; RB_NOGVL_INTR_FAIL leaves that interrupt pending, for switch_away to deliver.
static void poll_kernel(struct loop *loop)
{
    struct sleep sleep = {.loop = loop};
    deadline_t now = deadline_now();
    if (!loop->ready_head) {
        deadline_t next = timer_next(&loop->timers);
        sleep.timeout = next == DEADLINE_NEVER ? DEADLINE_NEVER : next > now ? next - now : 0;
    }
    loop->statistics.polls++;
    if (sleep.timeout > 0) {
        loop->statistics.sleeps++;
        atomic_store(&loop->wakeup->sleeping, true);
        // A note posted before the store above was not signalled.
        if (atomic_load(&loop->wakeup->notes)) sleep.timeout = 0;
        rb_nogvl(sleep_without_gvl, &sleep, interrupt_sleep, loop->wakeup,
                 RB_NOGVL_INTR_FAIL | RB_NOGVL_UBF_ASYNC_SAFE);
        atomic_store(&loop->wakeup->sleeping, false);
        now = deadline_now();
    } else {
        sleep_without_gvl(&sleep);
    }
    if (sleep.error) rb_syserr_fail(sleep.error, loop->backend->name);
    int found =
        loop->backend->collect(loop->backend_state, loop) + take_notes(loop) + (int)timer_expire(&loop->timers, now);
    if (found) {
        loop->poll_every = POLL_OFTEN;
    } else {
        loop->statistics.empty_polls++;
        if (loop->poll_every < POLL_SELDOM) loop->poll_every *= 2;
    }
    loop->since_poll = 0;
    loop->last_poll = now;
}

// Whether what is in flight gets a look before the next ready fiber runs.
static bool poll_due(struct loop *loop)
{
    if (!loop->ready_head || loop->since_poll >= loop->poll_every) return true;
    return loop->since_poll && loop->since_poll % CLOCK_EVERY == 0 && deadline_now() - loop->last_poll >= MILLISECOND;
}

// ---- switching

// Who gets an interrupt that came while a fiber polled: whatever runs outside of all tasks, that is, who called the
// outermost run; never whichever task happened to poll. RUBY_VM_CHECK_INTS looks at the flags of the running fiber
// only, rb_thread_check_ints at the thread's queue: it must be called there.
static void deliver_interrupt(struct loop *loop, struct loop_wait *self)
{
    struct loop_wait *root = loop->root.wait;
    if (root && root != self && root->fiber != self->fiber) {
        loop->interrupt_due = true;
        loop->statistics.switches++;
        rb_fiber_transfer(root->fiber, 0, NULL);
    } else {
        loop->task = self->task;
        rb_thread_check_ints();
    }
}

static void take_interrupt(struct loop *loop, struct loop_wait *self)
{
    if (!loop->interrupt_due || self != loop->root.wait) return;
    loop->interrupt_due = false;
    loop->task = self->task;
    rb_thread_check_ints();
}

// Runs others until `self` is dispatched. A fiber may also come back here without that: Ruby transfers to the thread's
// root (or to the innermost fiber that it resumes) when a fiber ends, and an interrupt brings the root back.
static void switch_away(struct loop *loop, struct loop_wait *self)
{
    loop->since_switch = 0;
    for (;;) {
        take_interrupt(loop, self);
        if (self->state == WAIT_RUNNING) break;
        if (rb_thread_interrupted(loop->thread)) {
            deliver_interrupt(loop, self);
        } else if (poll_due(loop)) {
            poll_kernel(loop);
        } else {
            struct loop_wait *next = loop->ready_head;
            ready_remove(loop, next);
            loop->since_poll++;
            next->state = WAIT_RUNNING;
            if (next == self) continue;
            loop->statistics.switches++;
            rb_fiber_transfer(next->fiber, 0, NULL);
        }
    }
    loop->task = self->task;
}

// ---- parking

// What park leaves behind for its caller; the record itself is recycled by then.
struct parking {
    struct loop *loop;
    struct loop_wait *wait;
    int64_t span;
    short revents;
    int error;
    bool completed;
    struct loop_wait *outer_wait; // of the same task: a trap handler that waits
    VALUE start;                  // a fiber to run at once, or 0 …
    VALUE raise;                  // … and the exception to raise in it, or 0
    VALUE exception;              // was raised in the waiting fiber by somebody, or 0
};

static void begin(struct parking *parking, enum wait_kind kind)
{
    struct loop *loop = parking->loop;
    if (task_pending(loop->task)) task_raise_pending(loop->task);
    parking->wait = wait_acquire(&loop->waits, loop, kind);
    parking->wait->timer.expire = expire_wait;
    parking->wait->task = loop->task;
    parking->wait->fiber = rb_fiber_current();
    loop->statistics.waits++;
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
    } else if (wait->kind == WAIT_BLOCK) {
        fiber_index_put(&loop->blocked, wait);
    }
    if (parking->span != DEADLINE_NEVER)
        timer_add(&loop->timers, &wait->timer, deadline_after(deadline_now(), parking->span));
    if (wait->kind == WAIT_TURN) ready_push(loop, wait);
    if (parking->start) {
        loop->since_poll++;
        loop->statistics.switches++;
        if (parking->raise) {
            rb_fiber_raise(parking->start, 1, &parking->raise);
        } else {
            rb_fiber_transfer(parking->start, 0, NULL);
        }
    }
    switch_away(loop, wait);
    return Qnil;
}

// However the fiber got here: nothing may point to the record any more.
static void detach(struct loop *loop, struct loop_wait *wait)
{
    timer_cancel(&loop->timers, &wait->timer);
    if (wait->state == WAIT_READY && wait->kind != WAIT_MEMBER) ready_remove(loop, wait);
    if (wait->descriptor >= 0) {
        descriptor_unlink(loop, wait);
        if (wait->armed) loop->backend->disarm(loop->backend_state, wait);
        wait->armed = false;
    }
    if (wait->kind == WAIT_BLOCK) fiber_index_remove(&loop->blocked, wait);
}

static VALUE park_end(VALUE argument)
{
    struct parking *parking = (struct parking *)argument;
    struct loop *loop = parking->loop;
    struct loop_wait *wait = parking->wait;
    detach(loop, wait);
    parking->revents = wait->revents;
    parking->error = wait->error;
    parking->completed = wait->completed;
    parking->exception = wait->exception;
    loop->task = wait->task;
    wait->task->wait = parking->outer_wait;
    wait_release(&loop->waits, wait);
    return Qnil;
}

// Raises what was sent to the task only if the wait did not complete: whoever completed it (a Mutex that was handed
// over, a byte that arrived) must not be forgotten. The next wait raises then.
static void park(struct parking *parking)
{
    struct loop *loop = parking->loop;
    struct loop_wait *wait = parking->wait;
    parking->outer_wait = wait->task->wait;
    wait->task->wait = wait;
    rb_ensure(park_body, (VALUE)parking, park_end, (VALUE)parking);
    if (parking->completed) return;
    if (parking->exception) rb_exc_raise(parking->exception);
    if (task_pending(loop->task)) task_raise_pending(loop->task);
}

bool loop_block(struct loop *loop, int64_t span)
{
    struct parking parking = {.loop = loop, .span = span};
    begin(&parking, WAIT_BLOCK);
    park(&parking);
    return parking.completed;
}

void loop_unblock(struct loop *loop, VALUE fiber)
{
    struct loop_wait *wait = fiber_index_find(&loop->blocked, fiber);
    if (!wait) return;
    wait->completed = true;
    wake(loop, wait);
    if (loop->wakeup) wakeup_nudge(loop->wakeup);
}

void loop_yield(struct loop *loop)
{
    loop_start(loop, 0);
}

void loop_courtesy(struct loop *loop)
{
    if (++loop->since_switch >= COURTESY_EVERY) loop_yield(loop);
}

static int look(int descriptor, short events)
{
    struct pollfd now = {.fd = descriptor, .events = events};
    int count = poll(&now, 1, 0);
    if (count < 0) return errno == EINTR ? 0 : -errno;
    if (now.revents & POLLNVAL) return -EBADF;
    return answer(events, now.revents);
}

int loop_wait_descriptor(struct loop *loop, int descriptor, short events, int64_t span)
{
    // What is asked for writing is nearly always there (a connect on loopback, a socket buffer with room), and a
    // zero timeout asks for the truth now.
    if (span == 0 || (events & POLLOUT)) {
        int found = look(descriptor, events);
        if (found || span == 0) {
            if (task_pending(loop->task)) task_raise_pending(loop->task);
            loop_courtesy(loop);
            return found;
        }
    }
    struct parking parking = {.loop = loop, .span = span};
    begin(&parking, WAIT_DESCRIPTOR);
    parking.wait->descriptor = descriptor;
    parking.wait->events = events;
    park(&parking);
    if (parking.error) return -parking.error;
    return parking.completed ? parking.revents : 0;
}

void loop_wait_native(struct loop *loop, void (*submit)(void *argument, struct wakeup *wakeup, uint64_t key),
                      void *argument)
{
    struct parking parking = {.loop = loop, .span = DEADLINE_NEVER};
    begin(&parking, WAIT_NATIVE);
    submit(argument, loop->wakeup, wait_key(parking.wait));
    park(&parking);
}

// ---- several descriptors at once

struct selection {
    struct parking parking;
    struct pollfd *asked;
    struct loop_wait **members;
    size_t count;
    size_t made;
    bool parked;
};

static VALUE selection_body(VALUE argument)
{
    struct selection *selection = (struct selection *)argument;
    struct loop *loop = selection->parking.loop;
    for (size_t i = 0; i < selection->count; i++) {
        struct pollfd *asked = &selection->asked[i];
        struct loop_wait *member = wait_acquire(&loop->waits, loop, WAIT_MEMBER);
        selection->members[selection->made++] = member;
        member->parent = selection->parking.wait;
        member->descriptor = asked->fd;
        member->events = asked->events;
        int error = descriptor_arm(loop, member);
        if (error) descriptor_fire(loop, member, error == EPERM ? asked->events : 0, error == EPERM ? 0 : error);
    }
    selection->parked = true;
    park(&selection->parking);
    return Qnil;
}

static VALUE selection_end(VALUE argument)
{
    struct selection *selection = (struct selection *)argument;
    struct loop *loop = selection->parking.loop;
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

int loop_wait_any(struct loop *loop, struct pollfd *descriptors, size_t count, int64_t span)
{
    VALUE holder;
    struct selection selection = {.parking = {.loop = loop, .span = span}, .asked = descriptors, .count = count};
    selection.members = ALLOCV_N(struct loop_wait *, holder, count + 1);
    begin(&selection.parking, WAIT_SELECT);
    rb_ensure(selection_body, (VALUE)&selection, selection_end, (VALUE)&selection);
    ALLOCV_END(holder);
    if (selection.parking.error) return -selection.parking.error;
    int ready = 0;
    for (size_t i = 0; i < count; i++)
        ready += descriptors[i].revents != 0;
    return ready;
}

// ---- starting fibers, and keeping idle ones

void loop_start(struct loop *loop, VALUE fiber)
{
    struct parking parking = {.loop = loop, .span = DEADLINE_NEVER, .start = fiber};
    begin(&parking, WAIT_TURN);
    parking.wait->completed = true;
    park(&parking);
}

void loop_continue_idle(struct loop *loop, struct task *task)
{
    struct loop_wait *worker = loop->idle;
    struct parking parking = {.loop = loop, .span = DEADLINE_NEVER, .start = worker->fiber};
    begin(&parking, WAIT_TURN);
    parking.wait->completed = true;
    loop->idle = worker->next;
    loop->idle_count--;
    worker->next = NULL;
    worker->task = task;
    worker->state = WAIT_RUNNING;
    park(&parking);
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
    if (parking->wait->state == WAIT_PARKED) { // somebody raised in it
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
    struct parking parking = {.loop = loop};
    loop->task = &loop->root; // its own task is over
    parking.wait = wait_acquire(&loop->waits, loop, WAIT_IDLE);
    parking.wait->task = &loop->root;
    parking.wait->fiber = rb_fiber_current();
    rb_ensure(idle_body, (VALUE)&parking, idle_end, (VALUE)&parking);
}

// ---- work from other threads

void loop_post(struct loop *loop, struct task *task)
{
    if (NIL_P(loop->posted)) loop->posted = rb_ary_new();
    rb_ary_push(loop->posted, task->self);
    loop_unblock(loop, loop->porter);
}

struct task *loop_next_posted(struct loop *loop)
{
    while (NIL_P(loop->posted) || RARRAY_LEN(loop->posted) == 0)
        loop_block(loop, DEADLINE_NEVER);
    return task_of(rb_ary_shift(loop->posted));
}

// ---- exceptions from outside

static void match_fiber(struct loop_wait *wait, void *argument)
{
    struct loop_wait *wanted = argument;
    if (wait->fiber == wanted->fiber && (wait->state == WAIT_PARKED || wait->state == WAIT_READY)) wanted->parent = wait;
}

// Not only the blocked ones, which have an index: this is seldom asked.
static struct loop_wait *wait_of_fiber(struct loop *loop, VALUE fiber)
{
    struct loop_wait wanted = {.fiber = fiber};
    wait_slab_each(&loop->waits, match_fiber, &wanted);
    return wanted.parent;
}

bool loop_raise(struct loop *loop, VALUE fiber, VALUE exception)
{
    if (fiber == rb_fiber_current() || !wait_of_fiber(loop, fiber)) return false;
    struct parking parking = {.loop = loop, .span = DEADLINE_NEVER, .start = fiber, .raise = exception};
    begin(&parking, WAIT_TURN);
    parking.wait->completed = true;
    park(&parking);
    return true;
}

bool loop_interrupt_fiber(struct loop *loop, VALUE fiber, VALUE exception)
{
    struct loop_wait *wait = wait_of_fiber(loop, fiber);
    if (!wait) return false;
    wait->exception = exception;
    wake(loop, wait);
    if (loop->wakeup) wakeup_nudge(loop->wakeup);
    return true;
}

void loop_interrupt_task(struct loop *loop, struct task *task)
{
    if (task->wait) wake(loop, task->wait);
    if (loop->wakeup) wakeup_nudge(loop->wakeup);
}
