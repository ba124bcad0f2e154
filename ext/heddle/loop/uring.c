#include "loop/poller.h"
#include "loop/timerfd.h"
#include "os/fork.h"
#include "os/poll_at_once.h"
#include "shims.h"

#ifdef HEDDLE_HAS_LIBURING

#include <errno.h>
#include <liburing.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

// Only polls go through the ring, no reads or writes: the kernel never holds a pointer to our buffers, and an
// O_NONBLOCK descriptor would answer a read with EAGAIN at once anyway. A poll costs no system call of its own: the
// next wait submits it.

enum { ENTRIES = 1024 };

// Keys that name no wait record: no slab reaches their index.
#define WAKEUP_KEY UINT64_MAX
#define TIMER_KEY  (UINT64_MAX - 1)

// Marks the key of a poll's removal; the other bits are the poll's key.
#define REMOVAL (UINT64_C(1) << 31)

struct uring {
    struct io_uring ring;
    int wakeup_descriptor;
    bool rearm_wakeup;
    atomic_bool removals; // some are in the submission queue
    pthread_t thread;     // the only one that may enter the ring
    unsigned forks;       // see fork_count
    int broken; // errno with which the kernel refuses the ring, or 0. Polls may be lost: another backend must take over
    struct timerfd timer;
};

static int setup(struct io_uring *ring, unsigned entries)
{
    // DEFER_TASKRUN (kernel 6.1): completions are posted when we ask for them, not by interrupting Ruby code. It needs
    // SINGLE_ISSUER: the ring belongs to the native thread that made it. TASKRUN_FLAG: shows without a system call that
    // completions are to be fetched.
    struct io_uring_params params = {.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
                                              IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_CLAMP};
    int error = shim_threads_migrate() ? -EINVAL : io_uring_queue_init_params(entries, ring, &params);
    if (error == -EINVAL) {
        memset(&params, 0, sizeof(params));
        params.flags = IORING_SETUP_CLAMP;
        error = io_uring_queue_init_params(entries, ring, &params);
    }
    if (error == 0 && !(params.features & IORING_FEAT_EXT_ARG)) { // kernel < 5.11: a wait cannot have its own timeout
        io_uring_queue_exit(ring);
        return ENOSYS;
    }
    return -error;
}

static int uring_probe(void)
{
    struct io_uring ring;
    int error = setup(&ring, ENTRIES); // as large as the real ring: locked memory may be short
    if (error == 0) io_uring_queue_exit(&ring);
    return error;
}

// Returns whether entering the kernel can have any effect.
static bool has_work(struct io_uring *ring)
{
    if (!(ring->flags & IORING_SETUP_TASKRUN_FLAG) || io_uring_sq_ready(ring) > 0) return true;
    return IO_URING_READ_ONCE(*ring->sq.kflags) & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW);
}

// The submission queue gathers entries until the next wait; when it is full, it is submitted early. Returns NULL if the
// kernel takes nothing any more: the next wait then reports the ring as broken, and the loop arms all waits in another
// backend.
static struct io_uring_sqe *submission(struct uring *uring)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&uring->ring);
    if (!sqe && !uring->broken) {
        int result = io_uring_submit_and_get_events(&uring->ring); // also makes room for completions that wait for room
        sqe = io_uring_get_sqe(&uring->ring);
        if (!sqe) uring->broken = result < 0 ? -result : EAGAIN;
    }
    return sqe;
}

static void poll_once(struct uring *uring, int descriptor, short events, uint64_t key)
{
    struct io_uring_sqe *sqe = submission(uring);
    if (!sqe) return;
    io_uring_prep_poll_add(sqe, descriptor, (unsigned)events);
    io_uring_sqe_set_data64(sqe, key);
}

// Completes for each event that comes, until it is removed. collect skips the completions that no wait asked for.
static void poll_each(struct uring *uring, const struct loop_wait *wait, short events)
{
    struct io_uring_sqe *sqe = submission(uring);
    if (!sqe) return;
    io_uring_prep_poll_multishot(sqe, wait->descriptor, (unsigned)events);
    io_uring_sqe_set_data64(sqe, wait_key(wait));
}

static void *open_uring(int wakeup_descriptor)
{
    struct uring *uring = ZALLOC(struct uring);
    int error = setup(&uring->ring, ENTRIES);
    if (error) {
        xfree(uring);
        errno = error;
        return NULL;
    }
    // A child of fork must not map the queues: it would share them with the parent.
    io_uring_ring_dontfork(&uring->ring);
    uring->wakeup_descriptor = wakeup_descriptor;
    uring->rearm_wakeup = true;
    uring->thread = pthread_self();
    uring->forks = fork_count();
    timerfd_open(&uring->timer);
    return uring;
}

static void close_uring(void *state, bool forked)
{
    struct uring *uring = state;
    if (forked) {
        close(uring->ring.ring_fd); // this process has no mappings of the ring
    } else {
        // The kernel removes the polls some time after the last process has closed the ring. Submitted removals let go
        // of closed sockets at once.
        if (uring->removals && !uring->broken && pthread_equal(uring->thread, pthread_self()))
            io_uring_submit_and_get_events(&uring->ring);
        // Other code closed the ring's descriptor; the number may be another file's by now.
        if (uring->broken == EBADF || uring->broken == EOPNOTSUPP) uring->ring.ring_fd = -1;
        io_uring_queue_exit(&uring->ring);
    }
    timerfd_close(&uring->timer);
    xfree(uring);
}

static void remove_poll(struct uring *uring, uint64_t key)
{
    struct io_uring_sqe *sqe = submission(uring);
    if (!sqe) return; // the poll ends with the ring
    io_uring_prep_poll_remove(sqe, key);
    io_uring_sqe_set_data64(sqe, key | REMOVAL);
    uring->removals = true;
}

static int uring_arm(void *state, struct loop_wait *wait, short asked)
{
    (void)asked;
    struct uring *uring = state;
    short events = wait->events & POLLIN ? (short)(wait->events | POLLRDHUP) : wait->events;
    if (!(events & POLLPRI)) {
        poll_once(uring, wait->descriptor, events, wait_key(wait));
        return 0;
    }
    // A poll for POLLPRI alone does not complete for urgent data that was there before (seen on Linux 6.18); a poll
    // that also asks for POLLIN does.
    poll_each(uring, wait, (short)(events | POLLIN));
    return 0;
}

static void uring_disarm(void *state, struct loop_wait *wait, bool last)
{
    (void)last;
    // The kernel's poll holds the file open until it is removed: without the removal a closed socket sends no FIN.
    remove_poll(state, wait_key(wait));
}

// A close that follows an interrupted wait reaches the peer at once, as it does without a ring: what this thread then
// sends on another connection must not arrive before it. (Redis gives a value to a blocked client that is gone.)
static void uring_closing(void *state, int descriptor)
{
    (void)descriptor;
    struct uring *uring = state;
    if (!uring->removals || uring->forks != fork_count() || !pthread_equal(uring->thread, pthread_self())) return;
    // The removed polls let go of their files when their completions are fetched. After an error the next wait submits.
    if (io_uring_submit_and_get_events(&uring->ring) >= 0) uring->removals = false;
}

// Keeps time for a wait until `until`. True if the wait then needs no timeout. An armed timerfd has a poll, which
// completes when the timerfd fires.
static bool keep_time(struct uring *uring, int64_t timeout, deadline_t until)
{
    struct timerfd *timer = &uring->timer;
    if (timerfd_suffices(timer, timeout, until)) return true;
    bool polled = timer->at != 0;
    if (!timerfd_set(timer, timeout, until)) return false;
    if (!polled) poll_once(uring, timer->descriptor, POLLIN, TIMER_KEY);
    return true;
}

static int wait_uring(void *state, int64_t timeout, deadline_t until)
{
    struct uring *uring = state;
    if (uring->rearm_wakeup) {
        poll_once(uring, uring->wakeup_descriptor, POLLIN, WAKEUP_KEY);
        uring->rearm_wakeup = false;
    }
    if (timeout > 0 && keep_time(uring, timeout, until)) timeout = DEADLINE_NEVER;
    if (uring->broken) return uring->broken;
    int result;
    if (timeout == 0) {
        if (!has_work(&uring->ring)) return 0;
        result = io_uring_submit_and_get_events(&uring->ring);
    } else {
        struct __kernel_timespec span = {.tv_sec = timeout / 1000000000, .tv_nsec = timeout % 1000000000};
        struct io_uring_cqe *first;
        result =
            io_uring_submit_and_wait_timeout(&uring->ring, &first, 1, timeout == DEADLINE_NEVER ? NULL : &span, NULL);
    }
    if (io_uring_sq_ready(&uring->ring) == 0) uring->removals = false;
    if (result >= 0 || result == -ETIME || result == -EINTR || result == -EAGAIN || result == -EBUSY) return 0;
    uring->broken = -result;
    return uring->broken;
}

// A completion repeats the events that woke the poll, and sockets wake with POLLPRI among them whatever arrived
// (sock_def_readable).
static short confirm_urgent(struct poller *poller, uint64_t key, short revents)
{
    struct loop_wait *wait = wait_find(&poller->waits, key);
    if (!wait || !wait->armed) return revents;
    struct pollfd now = {.fd = wait->descriptor, .events = POLLPRI};
    if (poll_at_once(&now, 1) > 0 && now.revents & POLLPRI) return revents;
    return (short)(revents & ~POLLPRI);
}

static struct loop_wait *armed_wait(struct poller *poller, uint64_t key)
{
    struct loop_wait *wait = wait_find(&poller->waits, key);
    return wait && wait->armed ? wait : NULL;
}

// A poll ends too early if the completion queue is full, or with an event that no wait asked for: the kernel reports
// POLLRDHUP to each poll, and would report it at once to the next single one. The poll of each event may also
// outlive its wait: its removal fails if the poll is just completing, and only the poll's next completion shows that
// the poll still exists. Left alone, the poll would keep the file open for ever.
static void end_or_arm_again(struct uring *uring, struct poller *poller, uint64_t key, bool goes_on)
{
    struct loop_wait *wait = armed_wait(poller, key);
    if (wait && !goes_on) poll_each(uring, wait, wait->events & POLLPRI ? wait->events | POLLIN : wait->events);
    if (!wait && goes_on) remove_poll(uring, key);
}

static void take_completion(struct uring *uring, struct poller *poller, const struct io_uring_cqe *cqe)
{
    uint64_t key = cqe->user_data;
    if (cqe->res < 0) {
        if (cqe->res != -ECANCELED) poller_wait_ready(poller, key, 0, -cqe->res);
        return;
    }
    short revents = (short)cqe->res;
    if (revents & POLLRDHUP) revents |= POLLIN;
    if (revents & POLLPRI) revents = confirm_urgent(poller, key, revents);
    bool taken = poller_wait_ready(poller, key, revents, 0), goes_on = cqe->flags & IORING_CQE_F_MORE;
    if (goes_on || !taken) end_or_arm_again(uring, poller, key, goes_on);
}

static int uring_collect(void *state, struct poller *poller)
{
    struct uring *uring = state;
    struct io_uring_cqe *cqe;
    unsigned head;
    unsigned seen = 0;
    int found = 0;
    io_uring_for_each_cqe(&uring->ring, head, cqe)
    {
        seen++;
        uint64_t key = cqe->user_data;
        if (key == TIMER_KEY) {
            timerfd_forget(&uring->timer);
        } else if (key == WAKEUP_KEY) {
            uring->rearm_wakeup = true;
            poller_signalled(poller);
            found++;
        } else if (key & REMOVAL) {
            // The poll was completing just then, and may wait again without a completion.
            if (cqe->res == -EALREADY) remove_poll(uring, key & ~REMOVAL);
        } else {
            take_completion(uring, poller, cqe);
            found++;
        }
    }
    io_uring_cq_advance(&uring->ring, seen);
    return found;
}

const struct backend backend_uring = {"uring",      uring_probe,   open_uring, close_uring,  uring_arm,
                                      uring_disarm, uring_closing, wait_uring, uring_collect};

#endif
