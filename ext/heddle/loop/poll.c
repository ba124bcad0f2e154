#include "loop/poll_slices.h"
#include "loop/poller.h"
#include "os/simulated.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

// poll(2), which every platform has. Its cost grows with the number of waiting descriptors. Each descriptor has one
// entry, however many waits it has: the kernel refuses more entries than the process may have descriptors.

struct poll_set {
    struct pollfd *asked; // [0] is the wake-up descriptor's entry
    nfds_t count;
    nfds_t capacity;
    nfds_t *indices; // by descriptor: its index in `asked`, or 0
    int index_capacity;
    int found;
};

static int poll_probe(void)
{
    return 0;
}

static void poll_reserve(struct poll_set *set)
{
    if (set->count < set->capacity) return;
    nfds_t capacity = set->capacity ? set->capacity * 2 : 64;
    REALLOC_N(set->asked, struct pollfd, capacity);
    set->capacity = capacity;
}

static void *open_set(int wakeup_descriptor)
{
    struct poll_set *set = ZALLOC(struct poll_set);
    poll_reserve(set);
    set->asked[0] = (struct pollfd){.fd = wakeup_descriptor, .events = POLLIN};
    set->count = 1;
    return set;
}

static void close_set(void *state, bool forked)
{
    (void)forked;
    struct poll_set *set = state;
    xfree(set->asked);
    xfree(set->indices);
    xfree(set);
}

static nfds_t *index_of(struct poll_set *set, int descriptor)
{
    if (descriptor >= set->index_capacity) {
        int capacity = poller_table_capacity(descriptor);
        REALLOC_N(set->indices, nfds_t, capacity);
        memset(set->indices + set->index_capacity, 0, (size_t)(capacity - set->index_capacity) * sizeof(nfds_t));
        set->index_capacity = capacity;
    }
    return &set->indices[descriptor];
}

static void remove_at(struct poll_set *set, nfds_t index)
{
    nfds_t last = --set->count;
    set->indices[set->asked[index].fd] = 0;
    if (index == last) return;
    set->asked[index] = set->asked[last];
    set->indices[set->asked[index].fd] = index;
}

static int poll_arm(void *state, struct loop_wait *wait, short asked)
{
    struct poll_set *set = state;
    nfds_t *index = index_of(set, wait->descriptor);
    if (!*index) {
        poll_reserve(set);
        *index = set->count++;
        set->asked[*index] = (struct pollfd){.fd = wait->descriptor};
    }
    set->asked[*index].events = asked;
    return 0;
}

static void poll_disarm(void *state, struct loop_wait *wait, bool last)
{
    struct poll_set *set = state;
    if (!last) return; // what only this wait asked for may end one poll more
    nfds_t index = *index_of(set, wait->descriptor);
    if (index) remove_at(set, index); // otherwise the number was closed, which has ended all waits for it
}

static int wait_set(void *state, int64_t timeout, deadline_t until)
{
    (void)until;
    struct poll_set *set = state;
    set->found = poll_slices(set->asked, set->count, deadline_milliseconds(timeout));
    if (set->found >= 0) return 0;
    set->found = 0;
    return errno == EINTR ? 0 : errno;
}

static void end_waits(struct poll_set *set, struct poller *poller, nfds_t index)
{
    struct pollfd asked = set->asked[index];
    remove_at(set, index);
    if (asked.revents & POLLNVAL) {
        poller_descriptor_gone(poller, asked.fd, EBADF);
    } else {
        poller_descriptor_ready(poller, asked.fd, asked.revents);
    }
}

// In a simulation: the kernel's events come in no certain order.
static void collect_in_any_order(struct poll_set *set, struct poller *poller)
{
    int *ready = ALLOC_N(int, set->count), count = 0;
    for (nfds_t i = 1; i < set->count; i++) {
        if (set->asked[i].revents) ready[count++] = set->asked[i].fd;
    }
    for (; count > 0; count--) {
        uint32_t drawn = simulated_draw((uint32_t)count);
        nfds_t index = *index_of(set, ready[drawn]);
        ready[drawn] = ready[count - 1];
        if (index && set->asked[index].revents) end_waits(set, poller, index);
    }
    xfree(ready);
}

static int poll_collect(void *state, struct poller *poller)
{
    struct poll_set *set = state;
    int found = set->found;
    set->found = 0;
    if (found == 0) return 0;
    if (set->asked[0].revents) poller_signalled(poller);
    if (deadline_simulated()) {
        collect_in_any_order(set, poller);
        return found;
    }
    // From the end: removing an entry moves the last entry here, and waits for other events are armed again behind it.
    for (nfds_t i = set->count; i-- > 1;) {
        if (set->asked[i].revents) end_waits(set, poller, i);
    }
    return found;
}

const struct backend backend_poll = {"poll",      poll_probe, open_set, close_set,   poll_arm,
                                     poll_disarm, NULL,       wait_set, poll_collect};
