#include "loop/poller.h"
#include "loop/timerfd.h"
#include "portable.h"

#ifdef HEDDLE_HAS_EPOLL

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { EVENTS = 256 };

#define WAKEUP_KEY UINT64_MAX
#define TIMER_KEY  (UINT64_MAX - 1)

// Each descriptor has one EPOLLONESHOT registration, renewed by one MOD per wait. An edge-triggered registration would
// save that system call, but a foreign wait may come before any read, with data left in the socket: then no edge would
// ever come.
struct registration {
    uint32_t generation : 31; // of the newest MOD or ADD; an older one's event is for a file that left this number
    uint32_t added : 1;       // as far as we know: the descriptor may have been closed without our notice
};

struct epoll {
    int descriptor; // -1 once other code has closed it
    struct timerfd timer;
    int found;
    int capacity;
    struct registration *registrations;
    struct epoll_event events[EVENTS];
};

static int epoll_probe(void)
{
    int descriptor = epoll_create1(EPOLL_CLOEXEC);
    if (descriptor < 0) return errno;
    close(descriptor);
    return 0;
}

static void *open_epoll(int wakeup_descriptor)
{
    struct epoll *epoll = ZALLOC(struct epoll);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = WAKEUP_KEY};
    epoll->descriptor = epoll_create1(EPOLL_CLOEXEC);
    if (epoll->descriptor < 0 || epoll_ctl(epoll->descriptor, EPOLL_CTL_ADD, wakeup_descriptor, &event) < 0) {
        int error = errno;
        if (epoll->descriptor >= 0) close(epoll->descriptor);
        xfree(epoll);
        errno = error;
        return NULL;
    }
    // Edge-triggered: the timerfd need not be read, because setting it again makes it unready.
    event = (struct epoll_event){.events = EPOLLIN | EPOLLET, .data.u64 = TIMER_KEY};
    timerfd_open(&epoll->timer);
    if (epoll_ctl(epoll->descriptor, EPOLL_CTL_ADD, epoll->timer.descriptor, &event) < 0) timerfd_close(&epoll->timer);
    return epoll;
}

static void close_epoll(void *state, bool forked)
{
    (void)forked; // the child's copy of the descriptor is its own to close
    struct epoll *epoll = state;
    if (epoll->descriptor >= 0) close(epoll->descriptor);
    timerfd_close(&epoll->timer);
    xfree(epoll->registrations);
    xfree(epoll);
}

static struct registration *registration_of(struct epoll *epoll, int descriptor)
{
    if (descriptor >= epoll->capacity) {
        int capacity = poller_table_capacity(descriptor);
        REALLOC_N(epoll->registrations, struct registration, capacity);
        memset(epoll->registrations + epoll->capacity, 0,
               (size_t)(capacity - epoll->capacity) * sizeof(struct registration));
        epoll->capacity = capacity;
    }
    return &epoll->registrations[descriptor];
}

static uint32_t epoll_events(short events)
{
    return (events & POLLIN ? EPOLLIN | EPOLLRDHUP : 0) | (events & POLLOUT ? EPOLLOUT : 0) |
           (events & POLLPRI ? EPOLLPRI : 0) | (events & PORTABLE_POLLRDHUP ? EPOLLRDHUP : 0);
}

static int epoll_arm(void *state, struct loop_wait *wait, short asked)
{
    struct epoll *epoll = state;
    struct registration *registration = registration_of(epoll, wait->descriptor);
    struct epoll_event event = {.events = EPOLLONESHOT | epoll_events(asked)};
    bool others = wait->fd_next || wait->fd_prev;
    event.data.u64 = (uint64_t)++registration->generation << 32 | (uint32_t)wait->descriptor;
    int first = registration->added ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
    registration->added = true;
    if (epoll_ctl(epoll->descriptor, first, wait->descriptor, &event) == 0) return 0;

    int error = errno;
    if (error == ENOENT && first == EPOLL_CTL_MOD) { // closed without our notice; the number is another file's
        if (others) event.events = EPOLLONESHOT | epoll_events(wait->events);
        if (epoll_ctl(epoll->descriptor, EPOLL_CTL_ADD, wait->descriptor, &event) == 0) return others ? ESTALE : 0;
        error = errno;
    } else if (error == EEXIST && first == EPOLL_CTL_ADD) { // already registered in the kernel: after dup and dup2
        if (epoll_ctl(epoll->descriptor, EPOLL_CTL_MOD, wait->descriptor, &event) == 0) return 0;
        error = errno;
    }
    registration->added = false;
    return error;
}

static void epoll_disarm(void *state, struct loop_wait *wait, bool last)
{
    // Makes no system call: the registration may fire once more and wakes nobody.
    (void)state, (void)wait, (void)last;
}

// Keeps time for a wait until `until`. True if the wait then needs no timeout.
static bool keep_time(struct epoll *epoll, int64_t timeout, deadline_t until)
{
    return timerfd_suffices(&epoll->timer, timeout, until) || timerfd_set(&epoll->timer, timeout, until);
}

static void epoll_closing(void *state, int descriptor)
{
    // The kernel will not know the next file with this number: arm must begin with ADD instead of a useless MOD. If the
    // descriptor is not closed after all, ADD fails with EEXIST, and arm uses MOD.
    struct epoll *epoll = state;
    if (descriptor < epoll->capacity) epoll->registrations[descriptor].added = false;
}

static int wait_milliseconds(struct epoll *epoll, int64_t timeout)
{
    return epoll_wait(epoll->descriptor, epoll->events, EVENTS, deadline_milliseconds(timeout));
}

static int wait_nanoseconds(struct epoll *epoll, int64_t timeout)
{
#ifdef __NR_epoll_pwait2 // kernel headers from 5.11 on
    // By ENOSYS: kernel < 5.11; by EPERM: a container's filter that is older than the call.
    static atomic_bool refused;
    if (!refused) {
        struct {
            int64_t seconds, nanoseconds;
        } span = {timeout / 1000000000, timeout % 1000000000}; // 64 bits each, whatever the system's time_t
        // By number: the C library's function is newer (glibc 2.35), and code that names it does not load without it.
        int found = (int)syscall(__NR_epoll_pwait2, epoll->descriptor, epoll->events, EVENTS,
                                 timeout == DEADLINE_NEVER ? NULL : &span, NULL, (size_t)0);
        if (found >= 0 || (errno != ENOSYS && errno != EPERM)) return found;
        refused = true;
    }
#endif
    return wait_milliseconds(epoll, timeout);
}

static int wait_epoll(void *state, int64_t timeout, deadline_t until)
{
    struct epoll *epoll = state;
    if (timeout > 0 && keep_time(epoll, timeout, until)) timeout = DEADLINE_NEVER;
    epoll->found = wait_nanoseconds(epoll, timeout);
    if (epoll->found >= 0) return 0;
    epoll->found = 0;
    if (errno == EINTR) return 0;
    if (errno == EBADF || errno == EINVAL) epoll->descriptor = -1; // the number may be another file's by now
    return errno;
}

static int epoll_collect(void *state, struct poller *poller)
{
    struct epoll *epoll = state;
    int count = epoll->found, found = count;
    epoll->found = 0;
    for (int i = 0; i < count; i++) {
        uint64_t key = epoll->events[i].data.u64;
        if (key == WAKEUP_KEY) {
            poller_signalled(poller);
            continue;
        }
        if (key == TIMER_KEY) {
            timerfd_forget(&epoll->timer);
            found--;
            continue;
        }
        int descriptor = (int)(uint32_t)key;
        if (epoll->registrations[descriptor].generation != (uint32_t)(key >> 32)) continue;
        uint32_t events = epoll->events[i].events;
        short revents = 0;
        if (events & (EPOLLIN | EPOLLRDHUP)) revents |= POLLIN;
        if (events & EPOLLRDHUP) revents |= PORTABLE_POLLRDHUP;
        if (events & EPOLLOUT) revents |= POLLOUT;
        if (events & EPOLLPRI) revents |= POLLPRI;
        if (events & EPOLLERR) revents |= POLLERR;
        if (events & EPOLLHUP) revents |= POLLHUP;
        poller_descriptor_ready(poller, descriptor, revents);
    }
    return found;
}

const struct backend backend_epoll = {"epoll",      epoll_probe,   open_epoll, close_epoll,  epoll_arm,
                                      epoll_disarm, epoll_closing, wait_epoll, epoll_collect};

#endif
