#include "loop/internals.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

static void descriptor_link(struct loop *loop, struct loop_wait *wait)
{
    if (wait->descriptor >= loop->descriptor_capacity) {
        int capacity = loop_table_capacity(wait->descriptor), more = capacity - loop->descriptor_capacity;
        REALLOC_N(loop->descriptors, struct descriptor, capacity);
        REALLOC_N(loop->drained, bool, capacity);
        memset(loop->descriptors + loop->descriptor_capacity, 0, (size_t)more * sizeof(struct descriptor));
        memset(loop->drained + loop->descriptor_capacity, 0, (size_t)more * sizeof(bool));
        loop->descriptor_capacity = capacity;
    }
    struct descriptor *descriptor = &loop->descriptors[wait->descriptor];
    wait->fd_prev = NULL;
    wait->fd_next = descriptor->waits;
    if (descriptor->waits) descriptor->waits->fd_prev = wait;
    descriptor->waits = wait;
}

bool loop_drained(const struct loop *loop, int descriptor)
{
    return descriptor < loop->descriptor_capacity && loop->drained[descriptor];
}

void loop_note_drained(struct loop *loop, int descriptor, bool drained)
{
    // A descriptor that nobody has waited for lies beyond the table, and needs no entry.
    if (descriptor < loop->descriptor_capacity) loop->drained[descriptor] = drained;
}

static bool descriptor_linked(const struct loop *loop, const struct loop_wait *wait)
{
    return wait->fd_prev || (wait->descriptor >= 0 && wait->descriptor < loop->descriptor_capacity &&
                             loop->descriptors[wait->descriptor].waits == wait);
}

void descriptor_unlink(struct loop *loop, struct loop_wait *wait)
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

short descriptor_answer(short asked, short found)
{
    return found & (POLLERR | POLLHUP | POLLNVAL) ? asked : asked & found;
}

struct loop_wait *descriptor_waits(const struct loop *loop, int descriptor)
{
    return descriptor < loop->descriptor_capacity ? loop->descriptors[descriptor].waits : NULL;
}

void descriptor_fire(struct loop *loop, struct loop_wait *wait, short revents, int error)
{
    wait->revents = revents;
    wait->error = error;
    wait->completed = true;
    descriptor_unlink(loop, wait);
    loop_wake(loop, wait);
}

int descriptor_arm(struct loop *loop, struct loop_wait *wait)
{
    descriptor_link(loop, wait);
    loop->statistics.system_calls++;
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
        short found = descriptor_answer(wait->events, revents);
        if (!found) continue;
        wait->armed = false;
        descriptor_fire(loop, wait, found, 0);
    }
    // Waits for other events on the same one-shot registration are armed again.
    struct loop_wait *rest = loop->descriptors[descriptor].waits;
    if (!rest) return;
    loop->statistics.system_calls++;
    int error = loop->backend->arm(loop->backend_state, rest, rest);
    if (error && error != ESTALE) loop_descriptor_gone(loop, descriptor, error);
}

bool loop_wait_ready(struct loop *loop, uint64_t key, short revents, int error)
{
    struct loop_wait *wait = wait_find(&loop->waits, key);
    if (!wait || !wait->armed) return false;
    short found = descriptor_answer(wait->events, revents);
    if (!found && !error) return false;
    wait->armed = false;
    // The wait may have completed already, because its descriptor is being closed.
    if (!wait->completed) descriptor_fire(loop, wait, found, error);
    return true;
}

void loop_descriptor_gone(struct loop *loop, int descriptor, int error)
{
    if (descriptor < 0 || descriptor >= loop->descriptor_capacity) return;
    while (loop->descriptors[descriptor].waits) {
        // Only the loop's own thread may talk to the backend: the fiber disarms its wait when it wakes.
        descriptor_fire(loop, loop->descriptors[descriptor].waits, 0, error);
    }
    if (loop->wakeup) wakeup_nudge(loop->wakeup);
}
