// Waits for the end of a task or a run from any context: a fiber of our loop, a fiber of another scheduler, a plain
// thread. The waiters are listed in a Hash, which the awaited object marks.
#ifndef HEDDLE_TASK_JOIN_H
#define HEDDLE_TASK_JOIN_H

#include "os/deadline.h"

// Sleeps until join_wake or until the deadline. May return early: the caller checks and calls again. `waiters` points
// to the Hash, or nil, in an object that `owner` keeps alive.
void join_wait(VALUE owner, VALUE *waiters, deadline_t deadline);

bool join_awaited(VALUE waiters);

// Wakes all waiters in the order in which they came; any thread.
void join_wake(VALUE owner, VALUE waiters);

// Like join_wake, but does not raise: `state` becomes that of the last exception, as by protect_next.
void join_wake_all(VALUE owner, VALUE waiters, int *state);

#endif
