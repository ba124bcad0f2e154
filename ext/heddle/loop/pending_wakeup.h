// A pending wakeup: an unblock that comes before its fiber has parked. Another thread may run after Ruby has listed the
// fiber as a waiter and before Ruby calls the hook. The loop keeps at most one such unblock per fiber, which ends the
// fiber's next blocking wait at once: Ruby's callers then check again for what they wait for.
#ifndef HEDDLE_LOOP_PENDING_WAKEUP_H
#define HEDDLE_LOOP_PENDING_WAKEUP_H

#include "loop/loop.h"

// Ignores an object that is not a living fiber. May raise NoMemoryError.
void pending_wakeup_keep(struct loop *loop, VALUE fiber);

// Takes the fiber's pending wakeup; returns whether the fiber had one. Call it only if loop->pending_wakeups is not 0.
bool pending_wakeup_take(struct loop *loop, VALUE fiber);

// Returns whether a pending wakeup ends this wait, which is about to park. Kernel#sleep leaves it for the next wait; a
// wait for a thread that lives takes it and goes on. Nothing that lets another thread run may come between this call
// and parking. Call it in the waiting fiber, only if loop->pending_wakeups is not 0.
bool pending_wakeup_ends(struct loop *loop, const struct loop_wait *wait);

// The value of a new loop's pending_wakeup_name.
VALUE pending_wakeup_name(void);

#endif
