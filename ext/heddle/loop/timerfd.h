// Keeps one timerfd armed across waits. With a timeout per wait the kernel sets and removes a timer each time, which
// costs more than all other work of a deadline. For waits that may last, the backend arms this timerfd instead: it
// stays armed for the following waits when a wait ends early, and fires once without effect.
#ifndef HEDDLE_LOOP_TIMERFD_H
#define HEDDLE_LOOP_TIMERFD_H

#include "os/deadline.h"

struct timerfd {
    int descriptor; // readable from `at` on until it is set again; -1 if the system offers none
    deadline_t at;  // the instant that it is set to, or 0
};

// Opened with the loop: opened later, within a wait, the timerfd might get the number of a file that was closed without
// our notice and that a fiber still waits for.
void timerfd_open(struct timerfd *timer);
void timerfd_close(struct timerfd *timer);

// Returns whether a wait of this many nanoseconds, until that instant, needs no timeout because the timerfd fires in
// time.
static inline bool timerfd_suffices(const struct timerfd *timer, int64_t timeout, deadline_t until)
{
    return timeout == DEADLINE_NEVER || (timer->at != 0 && timer->at <= until);
}

// Sets the timerfd if that is worth a system call. Returns false if not, or if there is no timerfd: the wait then needs
// a timeout.
bool timerfd_set(struct timerfd *timer, int64_t timeout, deadline_t until);

// The timerfd fired, or its event would reach nobody: it counts as not set.
static inline void timerfd_forget(struct timerfd *timer)
{
    timer->at = 0;
}

#endif
