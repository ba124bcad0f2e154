// Waits for one descriptor.
#include "loop/internals.h"

#include "loop/interrupt.h"
#include "loop/park.h"
#include "loop/without_wait.h"
#include "os/poll_at_once.h"

#include <errno.h>

RBIMPL_ATTR_NOINLINE()
static int descriptor_wait_look(struct loop *loop, int descriptor, short events)
{
    struct pollfd now = {.fd = descriptor, .events = events};
    loop->statistics.system_calls++;
    if (poll_at_once(&now, 1) < 0) return -errno;
    if (now.revents & POLLNVAL) return -EBADF;
    return descriptor_answer(events, now.revents);
}

short loop_urgent(struct loop *loop, int descriptor, short asked)
{
    struct pollfd now = {.fd = descriptor, .events = asked};
    loop->statistics.system_calls++;
    if (poll_at_once(&now, 1) < 0 || now.revents & POLLNVAL) return asked; // the next read or write reports it
    short found = now.revents;
    if (found & (POLLHUP | POLLERR)) found |= POLLIN;
    if (found & POLLERR) found |= POLLOUT;
    return found & asked;
}

// Apart from the first look, whose record would lie on the stack of each waiting fiber, too.
RBIMPL_ATTR_NOINLINE()
static int await_descriptor(struct loop *loop, int descriptor, short events, int64_t span)
{
    struct parking parking = {.loop = loop, .span = span};
    do {
        parking_begin(&parking, WAIT_DESCRIPTOR);
        parking.wait->descriptor = descriptor;
        parking.wait->events = events;
        park(&parking);
    } while (!parking_over(&parking));
    if (parking.error) return -parking.error;
    if (parking.completed) return parking.revents;
    // Fibers that were ready earlier ran between the timer's end and now, and may have written.
    return descriptor_wait_look(loop, descriptor, events);
}

int loop_wait_descriptor(struct loop *loop, int descriptor, short events, int64_t span)
{
    // A descriptor is nearly always ready for writing (a connect on loopback, a socket buffer with room), and a zero
    // timeout asks for the current state: so poll first. If something is pending for the task, a wait would raise; the
    // poll avoids that where no wait is needed.
    if (span == 0 || (events & POLLOUT) || owner_pending(loop->owner)) {
        int found = descriptor_wait_look(loop, descriptor, events);
        if (found || span == 0) {
            loop_use_budget(loop);
            return found;
        }
    }
    return await_descriptor(loop, descriptor, events, span);
}
