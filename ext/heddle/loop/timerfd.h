// A limit on each wait has the kernel set a timer and take it back, which costs more than all else of a deadline. Where a wait
// may last, a timer of the backend's own keeps the time: it stays set when the wait ends before, for the waits that follow, and
// goes off once for nobody.
#ifndef HEDDLE_LOOP_TIMERFD_H
#define HEDDLE_LOOP_TIMERFD_H

#include "deadline.h"

struct timerfd {
    int descriptor; // readable from `at` on until it is set again; -1 where none can be had
    deadline_t at;  // what it is set to, or 0
};

// Made with the loop: later, in a wait, it might get the number of a file that somebody has closed behind our back, and who
// waits for that.
void timerfd_open(struct timerfd *timer);
void timerfd_close(struct timerfd *timer);

// Whether a wait of so many nanoseconds, until that instant, needs no limit as it is set.
static inline bool standing_suffices(const struct timerfd *timer, int64_t timeout, deadline_t until)
{
    return timeout == DEADLINE_NEVER || (timer->at != 0 && timer->at <= until);
}

// Sets it, if that is worth a system call; false if not, or where none can be had: then a limit is needed.
bool timerfd_set(struct timerfd *timer, int64_t timeout, deadline_t until);

// It went off, or nobody would be told: it counts as not set.
static inline void standing_forget(struct timerfd *timer)
{
    timer->at = 0;
}

#endif
