#include "loop/loop.h"
#include "loop/timerfd.h"
#include "shims.h"

#ifdef HEDDLE_HAS_LIBURING

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
#define TIMER_KEY  (UINT64_MAX - 1)

// In the key of a removal, beside the key of the poll that it removes.
#define REMOVAL (UINT64_C(1) << 31)

struct uring {
    struct io_uring ring;
    int wakeup_descriptor;
    bool rearm_wakeup;
    int broken; // errno with which the kernel refuses the ring, or 0: polls may be lost, another backend must take over
    struct timerfd timer;
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

// The submission queue holds what has gathered since the last look; when it is full, it is handed over early. NULL
// where the kernel takes nothing any more: the next wait reports the ring as broken, and the loop asks another backend
// for all waits.
static struct io_uring_sqe *submission(struct uring *uring)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&uring->ring);
    if (!sqe && !uring->broken) {
        int result = io_uring_submit_and_get_events(&uring->ring); // also makes room for completions that wait for it
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
    timerfd_open(&uring->timer);
    return uring;
}

static void close_uring(void *state, bool forked)
{
    struct uring *uring = state;
    if (forked) {
        close(uring->ring.ring_fd); // the mappings are not in this process
    } else {
        // Somebody closed the ring's descriptor; the number may be another file's by now.
        if (uring->broken == EBADF || uring->broken == EOPNOTSUPP) uring->ring.ring_fd = -1;
        io_uring_queue_exit(&uring->ring);
    }
    timerfd_close(&uring->timer);
    xfree(uring);
}

static void remove_poll(struct uring *uring, uint64_t key)
{
    struct io_uring_sqe *sqe = submission(uring);
    if (!sqe) return; // it ends with the ring
    io_uring_prep_poll_remove(sqe, key);
    io_uring_sqe_set_data64(sqe, key | REMOVAL);
}

static int arm(void *state, struct loop_wait *wait, struct loop_wait *all)
{
    (void)all;
    struct uring *uring = state;
    short events = wait->events & POLLIN ? (short)(wait->events | POLLRDHUP) : wait->events;
    if (!(events & POLLPRI)) {
        poll_once(uring, wait->descriptor, events, wait_key(wait));
        return 0;
    }
    // Urgent data does not complete a poll for POLLPRI alone that was there before it (seen on Linux 6.18); one that
    // asks for POLLIN, too, it does. Of those completions, the ones that nobody asked for are passed over in collect.
    struct io_uring_sqe *sqe = submission(uring);
    if (!sqe) return 0;
    io_uring_prep_poll_multishot(sqe, wait->descriptor, (unsigned)(events | POLLIN));
    io_uring_sqe_set_data64(sqe, wait_key(wait));
    return 0;
}

static void disarm(void *state, struct loop_wait *wait, struct loop_wait *rest)
{
    (void)rest;
    // The kernel's poll holds the file open until it is told: without this a closed socket sends no FIN.
    remove_poll(state, wait_key(wait));
}

// Whether a wait until then needs no limit. While the timer is set it has a poll, which ends as it goes off.
static bool keep_time(struct uring *uring, int64_t timeout, deadline_t until)
{
    struct timerfd *timer = &uring->timer;
    if (standing_suffices(timer, timeout, until)) return true;
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
    if (result >= 0 || result == -ETIME || result == -EINTR || result == -EAGAIN || result == -EBUSY) return 0;
    uring->broken = -result;
    return uring->broken;
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

static struct loop_wait *armed_wait(struct loop *loop, uint64_t key)
{
    struct loop_wait *wait = wait_find(&loop->waits, key);
    return wait && wait->armed ? wait : NULL;
}

// A poll for urgent data ends with what nobody asked for when the completion queue is full. And it goes on after its
// wait is over: its removal, submitted already, fails where the poll is just completing, and only what the poll says
// next tells that it is still there. Left alone it would keep the file open for ever.
static void end_or_arm_again(struct uring *uring, struct loop *loop, uint64_t key, bool goes_on)
{
    struct loop_wait *wait = armed_wait(loop, key);
    if (wait && !goes_on) arm(uring, wait, wait);
    if (!wait && goes_on) remove_poll(uring, key);
}

static void take_completion(struct uring *uring, struct loop *loop, const struct io_uring_cqe *cqe)
{
    uint64_t key = cqe->user_data;
    if (cqe->res < 0) {
        if (cqe->res != -ECANCELED) loop_wait_ready(loop, key, 0, -cqe->res);
        return;
    }
    short revents = (short)cqe->res;
    if (revents & POLLRDHUP) revents |= POLLIN;
    if (revents & POLLPRI) revents = confirm_urgent(loop, key, revents);
    bool taken = loop_wait_ready(loop, key, revents, 0), goes_on = cqe->flags & IORING_CQE_F_MORE;
    if (goes_on || !taken) end_or_arm_again(uring, loop, key, goes_on);
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
        if (key == TIMER_KEY) {
            standing_forget(&uring->timer);
        } else if (key == WAKEUP_KEY) {
            uring->rearm_wakeup = true;
            loop_signalled(loop);
            found++;
        } else if (key & REMOVAL) {
            // The poll was at work just then, and may have gone back to waiting without a completion.
            if (cqe->res == -EALREADY) remove_poll(uring, key & ~REMOVAL);
        } else {
            take_completion(uring, loop, cqe);
            found++;
        }
    }
    io_uring_cq_advance(&uring->ring, seen);
    return found;
}

const struct backend backend_uring = {"uring", probe, open_uring, close_uring, arm, disarm, NULL, wait_uring, collect};

#endif
