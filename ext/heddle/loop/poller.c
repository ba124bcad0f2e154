#include "loop/poller.h"

#include "os/fork.h"

#include <errno.h>
#include <ruby/thread.h>
#include <string.h>

// ---- all open pollers of the process

static struct poller *open_pollers; // of the main Ractor, under its GVL

static void list_poller(struct poller *poller)
{
    poller->forks = fork_count();
    poller->next_open = open_pollers;
    open_pollers = poller;
}

static void unlist_poller(struct poller *poller)
{
    for (struct poller **link = &open_pollers; *link; link = &(*link)->next_open) {
        if (*link != poller) continue;
        *link = poller->next_open;
        return;
    }
}

void pollers_descriptor_closing(int descriptor)
{
    for (struct poller *poller = open_pollers; poller; poller = poller->next_open) {
        if (poller->forks != fork_count()) continue; // its eventfd would wake the parent
        poller_forget_reader(poller, descriptor);
        poller_descriptor_gone(poller, descriptor, ECANCELED);
        if (poller->backend->closing) poller->backend->closing(poller->backend_state, descriptor);
    }
}

// ---- life

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

void poller_open(struct poller *poller)
{
    struct wakeup *wakeup = wakeup_new();
    if (!wakeup) rb_sys_fail("heddle: cannot make a file descriptor to wake the loop");
    struct opening opening = {.backend = poller->backend, .wakeup = wakeup};
    int raised = 0;
    rb_protect(open_backend, (VALUE)&opening, &raised); // NoMemoryError
    if (!opening.state) {
        int error = errno;
        wakeup_release(wakeup);
        if (raised) rb_jump_tag(raised);
        errno = error;
        rb_sys_fail(poller->backend->name);
    }
    poller->wakeup = wakeup;
    poller->backend_state = opening.state;
    list_poller(poller);
}

void poller_close(struct poller *poller, bool forked)
{
    unlist_poller(poller);
    if (poller->backend_state) poller->backend->close(poller->backend_state, forked);
    poller->backend_state = NULL;
    if (poller->wakeup) wakeup_release(poller->wakeup);
    poller->wakeup = NULL;
}

void pollers_discard_parents(void)
{
    while (open_pollers)
        poller_close(open_pollers, true);
}

void poller_discard(struct poller *poller)
{
    poller_close(poller, true);
    memset(&poller->waits, 0, sizeof(poller->waits));
    poller->descriptors = NULL;
    poller->descriptor_capacity = 0;
}

void poller_free(struct poller *poller)
{
    wait_slab_free(&poller->waits);
    xfree(poller->descriptors);
    poller->descriptors = NULL;
    poller->descriptor_capacity = 0;
}

size_t poller_memsize(const struct poller *poller)
{
    return wait_slab_size(&poller->waits) + (size_t)poller->descriptor_capacity * sizeof(struct descriptor);
}

// ---- polling

struct poll {
    struct poller *poller;
    int64_t timeout;
    deadline_t until;
    int error;
    bool done;
};

static void *poll_kernel(void *argument)
{
    struct poll *poll = argument;
    poll->done = true;
    poll->error = poll->poller->backend->wait(poll->poller->backend_state, poll->timeout, poll->until);
    // Another thread may end the watch at the same time.
    _Atomic(deadline_t) *woken = atomic_load_explicit(&poll->poller->woken, memory_order_relaxed);
    if (woken) atomic_store(woken, deadline_now());
    return NULL;
}

static void interrupt_poll(void *argument)
{
    wakeup_signal(argument);
}

void poller_signalled(struct poller *poller)
{
    wakeup_drain(poller->wakeup);
}

static int take_notes(struct poller *poller)
{
    int count = 0;
    for (struct wakeup_note *note = wakeup_take(poller->wakeup); note; count++) {
        struct wakeup_note *next = note->next;
        struct loop_wait *wait = wait_find(&poller->waits, note->key);
        if (wait && (wait->kind == WAIT_NATIVE || wait->kind == WAIT_SELECT)) {
            wait->completed = true;
            poller->wake(poller, wait);
        }
        note->drop(note);
        note = next;
    }
    return count;
}

int poller_poll(struct poller *poller, int64_t timeout, deadline_t until)
{
    struct poll poll = {.poller = poller, .timeout = timeout, .until = until};
    poller->system_calls++;
    if (deadline_simulated()) {
        poll.timeout = 0;
        poll_kernel(&poll);
    } else if (timeout > 0) {
        struct wakeup *wakeup = poller->wakeup;
        atomic_store(&wakeup->sleeping, true);
        // A note that was posted before the store above sent no signal.
        if (atomic_load(&wakeup->notes)) poll.timeout = 0;
        rb_nogvl(poll_kernel, &poll, interrupt_poll, wakeup, RB_NOGVL_INTR_FAIL | RB_NOGVL_UBF_ASYNC_SAFE);
        atomic_store(&wakeup->sleeping, false);
    } else {
        poll_kernel(&poll);
    }
    if (poll.error) {
        poller_fall_back(poller, poll.error);
        return poll.done ? 0 : -1;
    }
    int found = poller->backend->collect(poller->backend_state, poller) + take_notes(poller);
    return poll.done || found ? found : -1;
}
