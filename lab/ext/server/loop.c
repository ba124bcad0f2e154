#include "loop.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { EVENTS_A_ROUND = 256 };
static const uint64_t SECOND = 1000000000;

uint64_t loop_clock(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * SECOND + (uint64_t)time.tv_nsec;
}

int loop_init(struct loop *loop)
{
    *loop = (struct loop){.epoll = epoll_create1(EPOLL_CLOEXEC)};
    return loop->epoll < 0 ? -1 : 0;
}

int loop_watch(struct loop *loop, struct source *source, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = source};
    int result = epoll_ctl(loop->epoll, source->watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, source->fd, &event);
    if (result == 0) source->watched = true;
    return result;
}

void loop_close(struct loop *loop, struct source *source)
{
    if (source->fd < 0) return;
    close(source->fd);
    source->fd = -1;
    source->watched = false;
    source->next_closed = loop->closed;
    loop->closed = source;
}

static void release_closed(struct loop *loop)
{
    while (loop->closed) {
        struct source *source = loop->closed;
        loop->closed = source->next_closed;
        if (source->release) source->release(source);
    }
}

static int wait_coarsely(struct loop *loop, struct epoll_event *events, uint64_t wait)
{
    uint64_t milliseconds = wait == UINT64_MAX ? 0 : (wait + 999999) / 1000000;
    int timeout = wait == UINT64_MAX ? -1 : milliseconds > 3600000 ? 3600000 : (int)milliseconds;
    return epoll_wait(loop->epoll, events, EVENTS_A_ROUND, timeout);
}

static int wait_for_events(struct loop *loop, struct epoll_event *events)
{
    uint64_t next = timers_next(&loop->timers), wait = UINT64_MAX;
    if (next != UINT64_MAX) {
        uint64_t now = loop_clock();
        wait = next > now ? next - now : 0;
    }
    if (loop->coarse) return wait_coarsely(loop, events, wait);

    /* musl, and glibc before 2.35, have no function for this system call. */
    struct {
        int64_t seconds, nanoseconds;
    } timeout = {(int64_t)(wait / SECOND), (int64_t)(wait % SECOND)};
    int count = (int)syscall(SYS_epoll_pwait2, loop->epoll, events, EVENTS_A_ROUND,
                             wait == UINT64_MAX ? NULL : &timeout, NULL, (size_t)0);
    if (count < 0 && errno == ENOSYS) { /* Linux < 5.11, some sandboxes */
        loop->coarse = true;
        return wait_coarsely(loop, events, wait);
    }
    return count;
}

int loop_run(struct loop *loop)
{
    struct epoll_event events[EVENTS_A_ROUND];

    while (!loop->stopped) {
        int count = wait_for_events(loop, events);
        if (count < 0 && errno != EINTR) return -1;
        for (int i = 0; i < count; i++) {
            struct source *source = events[i].data.ptr;
            if (source->fd >= 0) source->ready(source, events[i].events);
        }
        if (loop->timers.count > 0) timers_fire(&loop->timers, loop_clock());
        release_closed(loop);
    }
    return 0;
}

void loop_free(struct loop *loop)
{
    release_closed(loop);
    timers_free(&loop->timers);
    close(loop->epoll);
}
