#include "loop/loop.h"

#include <errno.h>
#include <poll.h>

// poll(2), which every platform has: the floor. Its cost grows with the number of waiting descriptors.

struct poll_set {
    struct pollfd *asked;     // [0] is the wake-up's
    struct loop_wait **waits; // who asked
    nfds_t count;
    nfds_t capacity;
    int found;
};

static int probe(void)
{
    return 0;
}

static void reserve(struct poll_set *set)
{
    if (set->count < set->capacity) return;
    nfds_t capacity = set->capacity ? set->capacity * 2 : 64;
    REALLOC_N(set->asked, struct pollfd, capacity);
    REALLOC_N(set->waits, struct loop_wait *, capacity);
    set->capacity = capacity;
}

static void *open_set(int wakeup_descriptor)
{
    struct poll_set *set = ZALLOC(struct poll_set);
    reserve(set);
    set->asked[0] = (struct pollfd){.fd = wakeup_descriptor, .events = POLLIN};
    set->waits[0] = NULL;
    set->count = 1;
    return set;
}

static void close_set(void *state, bool forked)
{
    (void)forked;
    struct poll_set *set = state;
    xfree(set->asked);
    xfree(set->waits);
    xfree(set);
}

static void remove_at(struct poll_set *set, nfds_t place)
{
    nfds_t last = --set->count;
    if (place == last) return;
    set->asked[place] = set->asked[last];
    set->waits[place] = set->waits[last];
    set->waits[place]->backend_place = (uint32_t)place;
}

static int arm(void *state, struct loop_wait *wait, struct loop_wait *all)
{
    (void)all;
    struct poll_set *set = state;
    reserve(set);
    set->asked[set->count] = (struct pollfd){.fd = wait->descriptor, .events = wait->events};
    set->waits[set->count] = wait;
    wait->backend_place = (uint32_t)set->count++;
    return 0;
}

static void disarm(void *state, struct loop_wait *wait)
{
    remove_at(state, wait->backend_place);
}

static int wait_set(void *state, int64_t timeout, deadline_t until)
{
    (void)until;
    struct poll_set *set = state;
    set->found = poll(set->asked, set->count, deadline_milliseconds(timeout));
    if (set->found >= 0) return 0;
    set->found = 0;
    return errno == EINTR ? 0 : errno;
}

static int collect(void *state, struct loop *loop)
{
    struct poll_set *set = state;
    int found = set->found;
    set->found = 0;
    if (found == 0) return 0;
    if (set->asked[0].revents) loop_signalled(loop);
    for (nfds_t i = set->count; i-- > 1;) { // from the end: removing moves the last one
        short revents = set->asked[i].revents;
        if (!revents) continue;
        struct loop_wait *wait = set->waits[i];
        remove_at(set, i);
        if (revents & POLLNVAL) {
            loop_wait_ready(loop, wait_key(wait), 0, EBADF);
        } else {
            loop_wait_ready(loop, wait_key(wait), revents, 0);
        }
    }
    return found;
}

const struct backend backend_poll = {"poll", probe, open_set, close_set, arm, disarm, NULL, wait_set, collect};
