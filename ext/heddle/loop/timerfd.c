#include "loop/timerfd.h"

#ifdef HEDDLE_HAS_TIMERFD

#include <sys/timerfd.h>
#include <unistd.h>

// Sleeps of a few milliseconds each have their own deadline: for them, setting the timerfd costs more than it saves.
static const int64_t LONG_WAIT = 10000000;

void timerfd_open(struct timerfd *timer)
{
    *timer = (struct timerfd){.descriptor = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)};
}

bool timerfd_set(struct timerfd *timer, int64_t timeout, deadline_t until)
{
    if (timeout < LONG_WAIT || timer->descriptor < 0) return false;
    struct itimerspec at = {.it_value = {.tv_sec = until / 1000000000, .tv_nsec = until % 1000000000}};
    timer->at = timerfd_settime(timer->descriptor, TFD_TIMER_ABSTIME, &at, NULL) == 0 ? until : 0;
    return timer->at != 0;
}

void timerfd_close(struct timerfd *timer)
{
    if (timer->descriptor >= 0) close(timer->descriptor);
    timer->descriptor = -1;
}

#else

void timerfd_open(struct timerfd *timer)
{
    *timer = (struct timerfd){.descriptor = -1};
}

bool timerfd_set(struct timerfd *timer, int64_t timeout, deadline_t until)
{
    (void)timer, (void)timeout, (void)until;
    return false;
}

void timerfd_close(struct timerfd *timer)
{
    (void)timer;
}

#endif
