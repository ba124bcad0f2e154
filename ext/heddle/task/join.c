#include "task/join.h"

#include "loop/park.h"
#include "loop/wake.h"
#include "os/trap_handlers.h"
#include "protect.h"
#include "shims.h"
#include "task/current.h"
#include "task/task_loop.h"

struct joining {
    VALUE owner;
    VALUE waiters;
    VALUE entry;  // [scheduler or nil, fiber or thread]
    VALUE number; // key in `waiters`
    deadline_t deadline;
    struct loop *loop;
    VALUE mutex; // for a wait in the main thread, which holds the mutex except while it sleeps; or 0
};

// In the main thread. A trap handler may run during the sleep, and end the wait that the sleep is for: Ruby forgets
// such a wake-up and would sleep on. Mutex#sleep returns after each handler.
static void sleep_among_handlers(struct joining *joining)
{
    VALUE left = Qnil;
    if (joining->deadline != DEADLINE_NEVER) {
        int64_t span = joining->deadline - deadline_now();
        if (span <= 0) return;
        left = DBL2NUM((double)span / 1e9);
    }
    rb_mutex_sleep(joining->mutex, left);
}

static void sleep_in_thread(deadline_t deadline)
{
    if (deadline == DEADLINE_NEVER) {
        rb_thread_sleep_deadly(); // Ruby raises a deadlock error if no other thread could end it
        return;
    }
    int64_t left = deadline - deadline_now();
    if (left <= 0) return;
    struct timeval span = {.tv_sec = left / 1000000000, .tv_usec = (left % 1000000000) / 1000 + 1};
    rb_thread_wait_for(span);
}

static VALUE wait_body(VALUE argument)
{
    struct joining *joining = (struct joining *)argument;
    int64_t left = DEADLINE_NEVER;
    if (joining->mutex) rb_mutex_lock(joining->mutex);
    if (joining->deadline != DEADLINE_NEVER) {
        left = joining->deadline - deadline_now();
        if (left <= 0) return Qnil;
    }
    rb_hash_aset(joining->waiters, joining->number, joining->entry);
    VALUE scheduler = rb_ary_entry(joining->entry, 0);
    if (joining->loop) {
        loop_block(joining->loop, joining->owner, left);
    } else if (!NIL_P(scheduler)) {
        rb_fiber_scheduler_block(scheduler, joining->owner,
                                 left == DEADLINE_NEVER ? Qnil : DBL2NUM((double)left / 1e9));
    } else if (joining->mutex) {
        sleep_among_handlers(joining);
    } else {
        sleep_in_thread(joining->deadline);
    }
    return Qnil;
}

static VALUE wait_end(VALUE argument)
{
    struct joining *joining = (struct joining *)argument;
    rb_hash_delete(joining->waiters, joining->number);
    if (joining->mutex) rb_mutex_unlock(joining->mutex);
    return Qnil;
}

// Each wait has a number of its own: the same fiber may wait again, for the same object, in a trap handler.
static uint64_t last_number;

void join_wait(VALUE owner, VALUE *waiters, deadline_t deadline)
{
    if (NIL_P(*waiters)) RB_OBJ_WRITE(owner, waiters, rb_hash_new());
    struct joining joining = {
        .owner = owner, .waiters = *waiters, .number = ULL2NUM(++last_number), .deadline = deadline};
    // Works from the root fiber, too, which is blocking and has no current scheduler: it can run the loop itself.
    struct context context = context_of_thread();
    joining.loop = context.loop;
    if (joining.loop) {
        loop_enter(joining.loop);
    } else {
        context = context_of_fiber();
    }
    // Trap handlers run only in the main thread, and never inside one another.
    if (NIL_P(context.scheduler) && rb_thread_current() == rb_thread_main() && !trap_handler_runs())
        joining.mutex = rb_mutex_new();
    VALUE waiter = NIL_P(context.scheduler) ? rb_thread_current() : rb_fiber_current();
    joining.entry = rb_assoc_new(context.scheduler, waiter);
    rb_ensure(wait_body, (VALUE)&joining, wait_end, (VALUE)&joining);
}

bool join_awaited(VALUE waiters)
{
    return !NIL_P(waiters) && RHASH_SIZE(waiters) > 0;
}

struct waking {
    VALUE owner;
    VALUE entry;
    uint64_t last; // number of the last wait that may be woken
    bool found;
};

static int take_entry(VALUE number, VALUE entry, VALUE argument)
{
    struct waking *waking = (struct waking *)argument;
    if (waking->found || NUM2ULL(number) > waking->last) return ST_STOP;
    waking->entry = entry;
    waking->found = true;
    return ST_DELETE;
}

static VALUE wake(VALUE argument)
{
    const struct waking *waking = (const struct waking *)argument;
    VALUE scheduler = rb_ary_entry(waking->entry, 0), waiter = rb_ary_entry(waking->entry, 1);
    struct loop *loop = loop_of(scheduler);
    if (loop) {
        loop_unblock(loop, waiter);
    } else if (!NIL_P(scheduler)) {
        rb_fiber_scheduler_unblock(scheduler, waking->owner, waiter);
    } else {
        rb_thread_wakeup_alive(waiter);
    }
    return Qnil;
}

// Allocates nothing, and goes on after another scheduler's error or an interrupt: a waiter that is not woken would
// wait for ever. Another scheduler may run other fibers meanwhile, which wait for the same object and have their wake
// still to come: hence one entry at a time, up to the last of now.
void join_wake_all(VALUE owner, VALUE waiters, int *state)
{
    if (!join_awaited(waiters)) return;
    struct waking waking = {.owner = owner, .last = last_number};
    for (;;) {
        waking.found = false;
        rb_hash_foreach(waiters, take_entry, (VALUE)&waking);
        if (!waking.found) return;
        protect_next(wake, (VALUE)&waking, state);
    }
}

void join_wake(VALUE owner, VALUE waiters)
{
    int state = 0;
    join_wake_all(owner, waiters, &state);
    if (state) rb_jump_tag(state);
}
