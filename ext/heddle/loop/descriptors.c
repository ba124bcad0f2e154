#include "loop/poller.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

static void descriptor_link(struct poller *poller, struct loop_wait *wait)
{
    if (wait->descriptor >= poller->descriptor_capacity) {
        int capacity = poller_table_capacity(wait->descriptor), more = capacity - poller->descriptor_capacity;
        REALLOC_N(poller->descriptors, struct descriptor, capacity);
        memset(poller->descriptors + poller->descriptor_capacity, 0, (size_t)more * sizeof(struct descriptor));
        poller->descriptor_capacity = capacity;
    }
    struct descriptor *descriptor = &poller->descriptors[wait->descriptor];
    wait->fd_prev = NULL;
    wait->fd_next = descriptor->waits;
    if (descriptor->waits) {
        descriptor->waits->fd_prev = wait;
    } else {
        descriptor->asked = 0;
    }
    descriptor->waits = wait;
    descriptor->asked |= wait->events;
}

bool poller_drained(const struct poller *poller, int descriptor)
{
    return descriptor < poller->descriptor_capacity && poller->descriptors[descriptor].drained;
}

static uint32_t name_of(const void *reader)
{
    return (uint32_t)((uintptr_t)reader >> 4);
}

bool poller_read_by(const struct poller *poller, int descriptor, const void *reader)
{
    return descriptor < poller->descriptor_capacity && poller->descriptors[descriptor].reader == name_of(reader);
}

void poller_note_read(struct poller *poller, int descriptor, const void *reader, bool drained)
{
    // A descriptor that nobody has waited for lies beyond the table, and needs no entry.
    if (descriptor >= poller->descriptor_capacity) return;
    poller->descriptors[descriptor].reader = name_of(reader);
    poller->descriptors[descriptor].drained = drained;
}

void poller_forget_reader(struct poller *poller, int descriptor)
{
    if (descriptor < poller->descriptor_capacity) poller->descriptors[descriptor].reader = 0;
}

static bool descriptor_linked(const struct poller *poller, const struct loop_wait *wait)
{
    return wait->fd_prev || (wait->descriptor >= 0 && wait->descriptor < poller->descriptor_capacity &&
                             poller->descriptors[wait->descriptor].waits == wait);
}

static void descriptor_unlink(struct poller *poller, struct loop_wait *wait)
{
    if (!descriptor_linked(poller, wait)) return;
    if (wait->fd_prev) {
        wait->fd_prev->fd_next = wait->fd_next;
    } else {
        poller->descriptors[wait->descriptor].waits = wait->fd_next;
    }
    if (wait->fd_next) wait->fd_next->fd_prev = wait->fd_prev;
    wait->fd_prev = wait->fd_next = NULL;
}

short descriptor_answer(short asked, short found)
{
    return found & (POLLERR | POLLHUP | POLLNVAL) ? asked : asked & found;
}

void descriptor_fire(struct poller *poller, struct loop_wait *wait, short revents, int error)
{
    wait->revents = revents;
    wait->error = error;
    wait->completed = true;
    descriptor_unlink(poller, wait);
    poller->wake(poller, wait);
}

int descriptor_ask(const struct poller *poller, struct loop_wait *wait)
{
    return poller->backend->arm(poller->backend_state, wait, poller->descriptors[wait->descriptor].asked);
}

int descriptor_arm(struct poller *poller, struct loop_wait *wait)
{
    descriptor_link(poller, wait);
    poller->system_calls++;
    int error = descriptor_ask(poller, wait);
    if (error == ESTALE) {
        poller->descriptors[wait->descriptor].asked = wait->events;
        error = 0;
        while (wait->fd_next)
            descriptor_fire(poller, wait->fd_next, 0, EBADF);
    }
    wait->armed = error == 0;
    return error;
}

void descriptor_leave(struct poller *poller, struct loop_wait *wait)
{
    if (wait->descriptor < 0) return;
    descriptor_unlink(poller, wait);
    if (!wait->armed) return;
    wait->armed = false;
    if (!poller->backend_state) return;
    poller->backend->disarm(poller->backend_state, wait, !poller->descriptors[wait->descriptor].waits);
}

void poller_descriptor_ready(struct poller *poller, int descriptor, short revents)
{
    if (descriptor >= poller->descriptor_capacity) return;
    struct loop_wait *next;
    short asked = 0;
    for (struct loop_wait *wait = poller->descriptors[descriptor].waits; wait; wait = next) {
        next = wait->fd_next;
        short found = descriptor_answer(wait->events, revents);
        if (found) {
            wait->armed = false;
            descriptor_fire(poller, wait, found, 0);
        } else {
            asked |= wait->events;
        }
    }
    poller->descriptors[descriptor].asked = asked;
    // Waits for other events on the same one-shot registration are armed again.
    struct loop_wait *rest = poller->descriptors[descriptor].waits;
    if (!rest) return;
    poller->system_calls++;
    int error = descriptor_ask(poller, rest);
    if (error && error != ESTALE) poller_descriptor_gone(poller, descriptor, error);
}

bool poller_wait_ready(struct poller *poller, uint64_t key, short revents, int error)
{
    struct loop_wait *wait = wait_find(&poller->waits, key);
    if (!wait || !wait->armed) return false;
    short found = descriptor_answer(wait->events, revents);
    if (!found && !error) return false;
    wait->armed = false;
    // The wait may have completed already, because its descriptor is being closed.
    if (!wait->completed) descriptor_fire(poller, wait, found, error);
    return true;
}

void poller_descriptor_gone(struct poller *poller, int descriptor, int error)
{
    if (descriptor < 0 || descriptor >= poller->descriptor_capacity || !poller->descriptors[descriptor].waits) return;
    while (poller->descriptors[descriptor].waits) {
        // Only the loop's own thread may talk to the backend: the fiber disarms its wait when it wakes.
        descriptor_fire(poller, poller->descriptors[descriptor].waits, 0, error);
    }
    if (poller->wakeup) wakeup_nudge(poller->wakeup);
}
