#include "loop/internals.h"

#include "loop/pending_wakeup.h"
#include "loop/interrupt.h"
#include "loop/wake.h"
#include "os/fork.h"

#include <errno.h>
#include <string.h>

// ---- all loops of the process

static struct loop *live_loops; // of the main Ractor, under its GVL
static unsigned forks;

// The loops of a parent do not run in a child of fork. Ruby 4.0 does not tell the child's thread of its scheduler, so
// the loop itself may never learn of the fork.
struct loop *loops_first(void)
{
    if (forks != fork_count()) live_loops = NULL;
    forks = fork_count();
    return live_loops;
}

static void list_loop(struct loop *loop)
{
    loop->next_live = loops_first();
    live_loops = loop;
}

static void unlist_loop(struct loop *loop)
{
    for (struct loop **link = &live_loops; *link; link = &(*link)->next_live) {
        if (*link != loop) continue;
        *link = loop->next_live;
        if (loop->fork_count == fork_count()) measuring_leave(loop);
        return;
    }
}

bool loops_interrupt_root(VALUE thread)
{
    for (struct loop *loop = loops_first(); loop; loop = loop->next_live) {
        if (loop->thread != thread || !loop->root->wait || loop->root->wait == loop->handling) continue;
        if (owner_pending(loop->root)) loop_interrupt_owner(loop, loop->root);
        return true;
    }
    return false;
}

// ---- life of a loop

static void wake(struct poller *poller, struct loop_wait *wait)
{
    struct loop *loop = (struct loop *)poller; // its first member
    if (wait->kind == WAIT_HANG_UP) {
        hang_up_found(loop, wait);
    } else {
        loop_wake(loop, wait);
    }
}

void loop_init(struct loop *loop, VALUE self, const struct owner_functions *owners, struct wait_owner *root,
               struct wait_owner *system)
{
    memset(loop, 0, sizeof(*loop));
    loop->poller.wake = wake;
    loop->self = self;
    loop->owners = owners;
    loop->owner = loop->root = root;
    loop->system = system;
    loop->poll_every = 1;
    loop->pending_wakeup_name = pending_wakeup_name();
    loop->fork_count = fork_count();
}

static void close_kernel_side(struct loop *loop, bool forked)
{
    unlist_loop(loop);
    poller_close(&loop->poller, forked);
}

// A child of fork has copies of everything but only the fiber that forked: the other fibers never run in the child, and
// the kernel's objects belong to the parent.
static void discard_parents_side(struct loop *loop)
{
    unlist_loop(loop);
    measuring_discard(loop);
    poller_discard(&loop->poller);
    // Tables are not freed: records of the parent's fibers point into them.
    memset(&loop->timers, 0, sizeof(loop->timers));
    memset(&loop->blocked, 0, sizeof(loop->blocked));
    memset(&loop->parked, 0, sizeof(loop->parked));
    memset(&loop->running, 0, sizeof(loop->running));
    memset(&loop->ready, 0, sizeof(loop->ready));
    loop->idle = loop->handling = loop->attending = NULL;
    loop->sends = loop->last_send = NULL;
    loop->root->wait = loop->system->wait = NULL;
    loop->idle_count = loop->ready_count = 0;
    loop->owners->discard(loop);
    loop->wakeable = 0;
    loop->interrupt_due = false;
    loop->thread = 0;
    loop->fork_count = fork_count();
}

static void begin(struct loop *loop)
{
    struct thread_label label = thread_label();
    // Another thread may have run, or a trap handler forked.
    if (loop->poller.backend_state || loop->closed || loop->fork_count != fork_count()) {
        loop_enter(loop);
        return;
    }
    loop->owners->adopt(loop); // may raise, so it comes before descriptors are opened
    poller_open(&loop->poller);
    loop->thread = rb_thread_current();
    loop->label = label;
    loop->last_poll = deadline_now();
    list_loop(loop);
    measuring_enter(loop); // a trace must find in the list each loop that writes into it
}

void loop_enter(struct loop *loop)
{
    if (loop->fork_count != fork_count()) discard_parents_side(loop);
    if (loop->poller.backend_state) {
        if (loop->thread == rb_thread_current()) return;
        rb_raise(heddle_eWrongThread,
                 "this scheduler runs on %" PRIsVALUE
                 ": call Heddle.spawn on that thread, or hand work over through a Heddle::FiberPool",
                 loop->thread);
    }
    if (!loop->poller.backend)
        rb_raise(rb_eArgError, "this scheduler was not initialized: make one with Heddle::Scheduler.new");
    if (loop->closed)
        rb_raise(heddle_eSchedulerClosed, "this scheduler is closed: make another with Heddle::Scheduler.new");
    begin(loop);
}

void loop_close(struct loop *loop)
{
    if (loop->fork_count != fork_count()) discard_parents_side(loop);
    loop->closed = true;
    close_kernel_side(loop, false);
}

static void mark_wait(struct loop_wait *wait, void *unused)
{
    (void)unused;
    // Pins the fiber, because fiber_index goes by its address. A fiber in the waiter list of a Mutex or Queue has no
    // other reference.
    if (wait->fiber) rb_gc_mark(wait->fiber);
    if (wait->exception) rb_gc_mark(wait->exception);
    if (wait->value) rb_gc_mark(wait->value);
    if (wait->kind == WAIT_BLOCK && wait->blocker) rb_gc_mark(wait->blocker);
    if (wait->owner && wait->owner->self) rb_gc_mark(wait->owner->self);
}

void loop_mark(struct loop *loop)
{
    rb_gc_mark(loop->self); // pins the scheduler: a pool's variable alone would let it move
    rb_gc_mark(loop->thread);
    if (loop->owner->self) rb_gc_mark(loop->owner->self);
    wait_slab_each(&loop->poller.waits, mark_wait, NULL);
}

size_t loop_memsize(const struct loop *loop)
{
    return poller_memsize(&loop->poller) + loop->timers.capacity * sizeof(struct timer *) +
           ((size_t)loop->blocked.capacity + loop->parked.capacity + loop->running.capacity) * sizeof(VALUE *);
}

void loop_free(struct loop *loop)
{
    close_kernel_side(loop, loop->fork_count != fork_count());
    timer_heap_free(&loop->timers);
    poller_free(&loop->poller);
    fiber_index_free(&loop->blocked);
    fiber_index_free(&loop->parked);
    fiber_index_free(&loop->running);
    measuring_free(loop);
    xfree(loop->scratch);
    xfree(loop->long_scratch);
    loop->scratch = loop->long_scratch = NULL;
}

char *loop_scratch(struct loop *loop)
{
    if (!loop->scratch) loop->scratch = ALLOC_N(char, LOOP_SCRATCH);
    return loop->scratch;
}

char *loop_long_scratch(struct loop *loop)
{
    if (!loop->long_scratch) loop->long_scratch = ALLOC_N(char, LOOP_LONG_SCRATCH);
    return loop->long_scratch;
}
