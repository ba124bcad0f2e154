#include "loop/loop.h"
#include "loop/standing_timer.h"
#include "shims.h"

#ifdef HAVE_LIBURING

#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <string.h>

// Only polls go through the ring, no reads or writes: the kernel never holds a pointer to a buffer of ours, and an
// O_NONBLOCK descriptor would answer EAGAIN to a read at once anyway. A poll costs no system call of its own: it is
// submitted with the next look at the ring.

enum { ENTRIES = 1024 };

// Keys that name no wait (an index that no slab reaches).
#define WAKEUP_KEY UINT64_MAX
#define CANCEL_KEY (UINT64_MAX - 1)
#define TIMER_KEY  (UINT64_MAX - 2)

struct uring {
    struct io_uring ring;
    int wakeup_descriptor;
    bool rearm_wakeup;
    struct standing_timer timer;
};

static int setup(struct io_uring *ring, unsigned entries)
{
    // DEFER_TASKRUN (kernel 6.1): completions are posted when we ask for them, not by interrupting Ruby code.
    // It needs SINGLE_ISSUER: the ring belongs to the native thread that made it.
    // TASKRUN_FLAG: where they wait to be asked for can be seen without a system call.
    struct io_uring_params params = {.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
                                              IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_CLAMP};
    int error = shim_threads_migrate() ? -EINVAL : io_uring_queue_init_params(entries, ring, &params);
    if (error == -EINVAL) {
        memset(&params, 0, sizeof(params));
        params.flags = IORING_SETUP_CLAMP;
        error = io_uring_queue_init_params(entries, ring, &params);
    }
    if (error == 0 && !(params.features & IORING_FEAT_EXT_ARG)) { // kernel < 5.11: no wait with a timeout of its own
        io_uring_queue_exit(ring);
        return ENOSYS;
    }
    return -error;
}

static int probe(void)
{
    struct io_uring ring;
    int error = setup(&ring, ENTRIES); // as large as the real one: locked memory may be short
    if (error == 0) io_uring_queue_exit(&ring);
    return error;
}

// Whether to enter the kernel would bring anything.
static bool has_work(struct io_uring *ring)
{
    if (!(ring->flags & IORING_SETUP_TASKRUN_FLAG) || io_uring_sq_ready(ring) > 0) return true;
    return IO_URING_READ_ONCE(*ring->sq.kflags) & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW);
}

// The submission queue holds what has gathered since the last look; when it is full, it is handed over early.
static struct io_uring_sqe *submission(struct uring *uring)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&uring->ring);
    if (!sqe) {
        io_uring_submit_and_get_events(&uring->ring); // also makes room for completions that wait for it
        sqe = io_uring_get_sqe(&uring->ring);
    }
    return sqe;
}

static int poll_once(struct uring *uring, int descriptor, short events, uint64_t key)
{
    struct io_uring_sqe *sqe = submission(uring);
    if (!sqe) return EAGAIN;
    io_uring_prep_poll_add(sqe, descriptor, (unsigned)events);
    io_uring_sqe_set_data64(sqe, key);
    return 0;
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
    // A child of fork must not see the queues: it would share them with the parent.
    io_uring_ring_dontfork(&uring->ring);
    uring->wakeup_descriptor = wakeup_descriptor;
    uring->rearm_wakeup = true;
    standing_open(&uring->timer);
    return uring;
}

static void close_uring(void *state, bool forked)
{
    struct uring *uring = state;
    if (forked) {
        close(uring->ring.ring_fd); // the mappings are not in this process
    } else {
        io_uring_queue_exit(&uring->ring);
    }
    standing_close(&uring->timer);
    xfree(uring);
}

static void remove_poll(struct uring *uring, uint64_t key)
{
    struct io_uring_sqe *sqe = submission(uring);
    if (!sqe) return; // it ends by itself, as an old generation
    io_uring_prep_poll_remove(sqe, key);
    io_uring_sqe_set_data64(sqe, CANCEL_KEY);
}

static int arm(void *state, struct loop_wait *wait, struct loop_wait *all)
{
    (void)all;
    struct uring *uring = state;
    short events = wait->events & POLLIN ? (short)(wait->events | POLLRDHUP) : wait->events;
    if (!(events & POLLPRI)) return poll_once(uring, wait->descriptor, events, wait_key(wait));
    // Urgent data does not complete a poll for POLLPRI alone that was there before it (seen on Linux 6.18); one that asks
    // for POLLIN, too, it does. Of those completions, the ones that nobody asked for are passed over in collect.
    struct io_uring_sqe *sqe = submission(uring);
    if (!sqe) return EAGAIN;
    io_uring_prep_poll_multishot(sqe, wait->descriptor, (unsigned)(events | POLLIN));
    io_uring_sqe_set_data64(sqe, wait_key(wait));
    return 0;
}

static void disarm(void *state, struct loop_wait *wait)
{
    // The kernel's poll holds the file open until it is told: without this a closed socket sends no FIN.
    remove_poll(state, wait_key(wait));
}

// Whether a wait until then needs no limit. While the timer is set it has a poll, which ends as it goes off.
static bool keep_time(struct uring *uring, int64_t timeout, deadline_t until)
{
    struct standing_timer *timer = &uring->timer;
    if (standing_suffices(timer, timeout, until)) return true;
    bool polled = timer->at != 0;
    if (!standing_set(timer, timeout, until)) return false;
    if (polled || poll_once(uring, timer->descriptor, POLLIN, TIMER_KEY) == 0) return true;
    standing_forget(timer);
    return false;
}

static int wait_uring(void *state, int64_t timeout, deadline_t until)
{
    struct uring *uring = state;
    if (uring->rearm_wakeup) {
        if (poll_once(uring, uring->wakeup_descriptor, POLLIN, WAKEUP_KEY) == 0) uring->rearm_wakeup = false;
    }
    if (timeout > 0 && keep_time(uring, timeout, until)) timeout = DEADLINE_NEVER;
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
    if (result >= 0 || result == -ETIME || result == -EINTR || result == -EAGAIN || result == -EBUSY) return 0;
    return -result;
}

// A completion repeats what woke the poll, and sockets wake with POLLPRI in it whatever arrived (sock_def_readable).
static short confirm_urgent(struct loop *loop, uint64_t key, short revents)
{
    struct loop_wait *wait = wait_find(&loop->waits, key);
    if (!wait || !wait->armed) return revents;
    struct pollfd now = {.fd = wait->descriptor, .events = POLLPRI};
    if (poll(&now, 1, 0) > 0 && now.revents & POLLPRI) return revents;
    return (short)(revents & ~POLLPRI);
}

// A poll for urgent data ends with what nobody asked for when the completion queue is full.
static void arm_again(struct uring *uring, struct loop *loop, uint64_t key)
{
    struct loop_wait *wait = wait_find(&loop->waits, key);
    if (!wait || !wait->armed) return;
    int error = arm(uring, wait, wait);
    if (error) loop_wait_ready(loop, key, 0, error);
}

static int collect(void *state, struct loop *loop)
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
        if (key == CANCEL_KEY) continue;
        if (key == TIMER_KEY) {
            standing_forget(&uring->timer);
            continue;
        }
        if (key == WAKEUP_KEY) {
            uring->rearm_wakeup = true;
            loop_signalled(loop);
        } else if (cqe->res >= 0) {
            short revents = (short)cqe->res;
            if (revents & POLLRDHUP) revents |= POLLIN;
            if (revents & POLLPRI) revents = confirm_urgent(loop, key, revents);
            bool taken = loop_wait_ready(loop, key, revents, 0), goes_on = cqe->flags & IORING_CQE_F_MORE;
            if (taken && goes_on) remove_poll(uring, key);
            if (!taken && !goes_on) arm_again(uring, loop, key);
        } else if (cqe->res != -ECANCELED) {
            loop_wait_ready(loop, key, 0, -cqe->res);
        }
        found++;
    }
    io_uring_cq_advance(&uring->ring, seen);
    return found;
}

const struct backend backend_uring = {"uring", probe, open_uring, close_uring, arm, disarm, NULL, wait_uring, collect};

#endif
