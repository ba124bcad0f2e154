// poll(2) that does not wait.
#ifndef HEDDLE_OS_POLL_AT_ONCE_H
#define HEDDLE_OS_POLL_AT_ONCE_H

#include <errno.h>
#include <poll.h>

// Like poll(2) with a timeout of 0, which a signal interrupts even so, but only where nothing is ready: then 0.
static inline int poll_at_once(struct pollfd *asked, nfds_t count)
{
    int found = poll(asked, count, 0);
    return found < 0 && errno == EINTR ? 0 : found;
}

#endif
