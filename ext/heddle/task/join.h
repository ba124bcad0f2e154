// Waiting for the end of something (a task, a run) from wherever one is: in a fiber of our loop, in one of a foreign
// scheduler, in a plain thread. Who waits is written in a Hash that the awaited object marks.
#ifndef HEDDLE_TASK_JOIN_H
#define HEDDLE_TASK_JOIN_H

#include "deadline.h"

// Sleeps until join_wake, or until the deadline. May come back early: look and call again. `waiters` points to the
// Hash, or nil, in an object that `owner` keeps alive.
void join_wait(VALUE owner, VALUE *waiters, deadline_t deadline);

bool join_awaited(VALUE waiters);

// Wakes all that wait, in the order in which they came; any thread.
void join_wake(VALUE owner, VALUE waiters);

#endif
