// Operations that end without parking: when they raise what is pending, and let other fibers run.
#ifndef HEDDLE_LOOP_WITHOUT_WAIT_H
#define HEDDLE_LOOP_WITHOUT_WAIT_H

#include "loop/loop.h"

// For a program's own operations that may end without parking. Only waits fail at a deadline, because a line that a
// `rescue` logs must still get into its file. But a peer that never lets the task wait must not outrun the deadline. So
// such operations call this before they begin: once something is pending for the task, PENDING_GRACE operations go
// through, and the next one raises before it has taken anything. Operations that never wait, as on a regular file,
// never fail. `descriptor`: the operation's, or -1.
enum { PENDING_GRACE = 64 };
void loop_check_pending(struct loop *loop, int descriptor);

// Like loop_check_pending, before a task is started, but raises a pending cancellation at once: the cancellation would
// not reach a task that starts after it, and the run would wait for that task.
void loop_check_pending_start(struct loop *loop);

// Called by operations that ended without parking: yields once the budget (budget.h) of operations and bytes is spent,
// so that a fiber whose data is always there does not starve the others. Raises nothing: what the operation has taken
// (bytes, a connection) must not be lost.
void loop_yield_if_spent(struct loop *loop, size_t bytes);

// The same for an operation on a descriptor that may be a file's.
void loop_yield_if_spent_after(struct loop *loop, int descriptor, size_t bytes);

// Like loop_check_pending and loop_yield_if_spent together, for an operation that loses nothing if this raises.
void loop_use_budget(struct loop *loop);

// For the steps of an exchange, each of which a deadline may end: like loop_yield_if_spent, but raises what a wait
// would raise once the budget is spent.
void loop_spend(struct loop *loop, size_t bytes);

#endif
