#include "loop/loop.h"

#include "loop/early_wake.h"
#include "os/fork.h"

#include <errno.h>
#include <string.h>

// ---- all loops of the process, for events that concern each of them: a descriptor that is closed

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

struct loop *loops_first(void)
{
    return live_loops;
}

void loops_descriptor_closing(int descriptor)
{
    for (struct loop *loop = live_loops; loop; loop = loop->next_live) {
        loop_descriptor_gone(loop, descriptor, ECANCELED);
        if (loop->backend_state && loop->backend->closing) loop->backend->closing(loop->backend_state, descriptor);
    }
}

bool loops_interrupt_root(VALUE thread)
{
    for (struct loop *loop = live_loops; loop; loop = loop->next_live) {
        if (loop->thread != thread || !loop->root->wait || loop->root->wait == loop->handling) continue;
        if (owner_pending(loop, loop->root)) loop_interrupt_owner(loop, loop->root);
        return true;
    }
    return false;
}

VALUE loops_root_fiber(VALUE thread)
{
    for (struct loop *loop = live_loops; loop; loop = loop->next_live) {
        if (loop->thread == thread && loop->root->wait) return loop->root->wait->fiber;
    }
    return 0;
}

// ---- life of a loop

void loop_init(struct loop *loop, VALUE self, const struct owner_functions *owners, struct wait_owner *root,
               struct wait_owner *system)
{
    memset(loop, 0, sizeof(*loop));
    loop->self = self;
    loop->owners = owners;
    loop->owner = loop->root = root;
    loop->system = system;
    loop->poll_every = 1;
    loop->early_wake_name = early_wake_name();
    loop->fork_count = fork_count();
}

static void close_kernel_side(struct loop *loop, bool forked)
{
    unlist_loop(loop);
    if (loop->backend_state) loop->backend->close(loop->backend_state, forked);
    loop->backend_state = NULL;
    if (loop->wakeup) wakeup_release(loop->wakeup);
    loop->wakeup = NULL;
}

// A child of fork has copies of everything but only the fiber that forked: the other fibers never run in the child, and
// the kernel's objects belong to the parent.
static void abandon_parents_side(struct loop *loop)
{
    close_kernel_side(loop, true);
    // Slabs and tables are not freed: records of the parent's fibers point into them.
    memset(&loop->timers, 0, sizeof(loop->timers));
    memset(&loop->waits, 0, sizeof(loop->waits));
    memset(&loop->blocked, 0, sizeof(loop->blocked));
    memset(&loop->parked, 0, sizeof(loop->parked));
    memset(&loop->running, 0, sizeof(loop->running));
    loop->descriptors = NULL;
    loop->drained = NULL;
    loop->descriptor_capacity = 0;
    loop->ready_head = loop->ready_tail = loop->idle = loop->handling = NULL;
    loop->root->wait = loop->system->wait = NULL;
    loop->idle_count = loop->ready_count = 0;
    loop->owners->abandon(loop);
    loop->wakeable = 0;
    loop->interrupt_due = false;
    loop->thread = 0;
    loop->fork_count = fork_count();
}

struct opening {
    const struct backend *backend;
    struct wakeup *wakeup;
    void *state;
};

static VALUE open_backend(VALUE argument)
{
    struct opening *opening = (struct opening *)argument;
    opening->state = opening->backend->open(opening->wakeup->reader);
    return Qnil;
}

void loop_enter(struct loop *loop)
{
    if (loop->fork_count != fork_count()) abandon_parents_side(loop);
    if (loop->backend_state) {
        if (loop->thread == rb_thread_current()) return;
        rb_raise(heddle_eWrongThread,
                 "this scheduler runs on %" PRIsVALUE
                 ": call Heddle.spawn on that thread, or hand work over through a Heddle::FiberPool",
                 loop->thread);
    }
    if (!loop->backend)
        rb_raise(rb_eArgError, "this scheduler was not initialized: make one with Heddle::Scheduler.new");
    if (loop->closed)
        rb_raise(heddle_eSchedulerClosed, "this scheduler is closed: make another with Heddle::Scheduler.new");
    loop->owners->adopt(loop); // may raise, so it comes before descriptors are opened
    struct wakeup *wakeup = wakeup_new();
    if (!wakeup) rb_sys_fail("heddle: cannot make a file descriptor to wake the loop");
    struct opening opening = {.backend = loop->backend, .wakeup = wakeup};
    int raised = 0;
    rb_protect(open_backend, (VALUE)&opening, &raised); // NoMemoryError
    if (!opening.state) {
        int error = errno;
        wakeup_release(wakeup);
        if (raised) rb_jump_tag(raised);
        errno = error;
        rb_sys_fail(loop->backend->name);
    }
    loop->wakeup = wakeup;
    loop->backend_state = opening.state;
    loop->thread = rb_thread_current();
    loop->last_poll = deadline_now();
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
    // Pins the fiber, because fiber_index goes by its address. A fiber in the waiter list of a Mutex or Queue has no
    // other reference.
    if (wait->fiber) rb_gc_mark(wait->fiber);
    if (wait->exception) rb_gc_mark(wait->exception);
    if (wait->kind == WAIT_BLOCK && wait->blocker) rb_gc_mark(wait->blocker);
    if (wait->owner && wait->owner->self) rb_gc_mark(wait->owner->self);
}

void loop_mark(struct loop *loop)
{
    rb_gc_mark(loop->self); // pins the scheduler: a pool's variable alone would let it move
    rb_gc_mark(loop->thread);
    if (loop->owner->self) rb_gc_mark(loop->owner->self);
    wait_slab_each(&loop->waits, mark_wait, NULL);
}

size_t loop_memsize(const struct loop *loop)
{
    return wait_slab_size(&loop->waits) + loop->timers.capacity * sizeof(struct timer *) +
           ((size_t)loop->blocked.capacity + loop->parked.capacity + loop->running.capacity) * sizeof(VALUE *) +
           (size_t)loop->descriptor_capacity * (sizeof(struct descriptor) + sizeof(bool));
}

void loop_free(struct loop *loop)
{
    close_kernel_side(loop, loop->fork_count != fork_count());
    timer_heap_free(&loop->timers);
    wait_slab_free(&loop->waits);
    fiber_index_free(&loop->blocked);
    fiber_index_free(&loop->parked);
    fiber_index_free(&loop->running);
    xfree(loop->scratch);
    xfree(loop->descriptors);
    xfree(loop->drained);
    loop->scratch = NULL;
    loop->descriptors = NULL;
    loop->drained = NULL;
}

char *loop_scratch(struct loop *loop)
{
    if (!loop->scratch) loop->scratch = ALLOC_N(char, LOOP_SCRATCH);
    return loop->scratch;
}
