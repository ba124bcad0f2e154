#include "stream/lock.h"

#include "shims.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <time.h>

static const int64_t SLOW = 1000000;        // nanoseconds to regain the GVL that somebody else must have used
static const int64_t LOOK = 200000;         // how long a look may take
static const int64_t REMEMBER = 1000000000; // then one wait finds out anew: the other thread may be done

bool lock_looking = true;
static deadline_t contended_until; // guarded by the GVL

bool lock_contended(void)
{
    return contended_until != 0 && deadline_now() < contended_until;
}

static void conclude(struct lock_poll *poll, int count, short revents)
{
    poll->found = count < 0 ? -errno : count > 0;
    if (count > 0 && revents & POLLNVAL) poll->found = -EBADF;
    // An error or a hang-up answers whatever was asked: the next read or write will tell which it is.
    poll->revents = revents & (POLLERR | POLLHUP) ? poll->events : (short)(revents & poll->events);
}

static void poll_once(struct lock_poll *poll, int64_t span)
{
    struct pollfd entry = {.fd = poll->descriptor, .events = poll->events};
#ifdef HAVE_PPOLL
    struct timespec limit = {.tv_sec = span / 1000000000, .tv_nsec = span % 1000000000};
    int count = ppoll(&entry, 1, span == DEADLINE_NEVER ? NULL : &limit, NULL);
#else
    int count = (poll)(&entry, 1, deadline_milliseconds(span));
#endif
    conclude(poll, count, entry.revents);
}

// One system call that sleeps, not a hundred that find nothing: on one core the peer needs the processor to answer.
static void look(struct lock_poll *poll, int64_t span)
{
#ifdef HAVE_PPOLL
    poll_once(poll, span < LOOK ? span : LOOK);
#else
    deadline_t until = deadline_after(deadline_now(), span < LOOK ? span : LOOK);
    do {
        poll_once(poll, 0);
    } while (poll->found == 0 && sched_yield() == 0 && deadline_now() < until);
#endif
    if (poll->found == -EINTR) poll->found = 0;
}

bool lock_look(struct lock_poll *poll, int64_t span)
{
    poll->found = 0;
    if (span == 0) {
        poll_once(poll, 0);
    } else if (lock_looking && lock_contended()) {
        look(poll, span);
    } else {
        return false;
    }
    return true;
}

struct unlocked {
    struct lock_poll *poll;
    int64_t span;
    deadline_t over;
};

static VALUE without_lock(void *argument)
{
    struct unlocked *unlocked = argument;
    poll_once(unlocked->poll, unlocked->span);
    unlocked->over = deadline_now();
    return Qnil;
}

void lock_poll_without(struct lock_poll *poll, VALUE io, int64_t span)
{
    struct unlocked unlocked = {.poll = poll, .span = span};
    poll->found = 0;
    shim_io_blocking_region(io, without_lock, &unlocked, poll->descriptor);
    deadline_t now = deadline_now();
    contended_until = unlocked.over && now - unlocked.over > SLOW ? now + REMEMBER : 0;
}
