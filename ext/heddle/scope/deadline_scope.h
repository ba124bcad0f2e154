// The deadline in force for the running code, for code that waits without the loop (a stream's poll, a connect), with a
// scheduler and without.
#ifndef HEDDLE_SCOPE_DEADLINE_SCOPE_H
#define HEDDLE_SCOPE_DEADLINE_SCOPE_H

#include "os/deadline.h"

// The earliest deadline of the running fiber's task, or of the running thread outside of any task; DEADLINE_NEVER
// without one. Deadlines outside of a shield do not count. Wait no longer than this, then call deadline_check.
deadline_t deadline_in_force(void);

// Whether the running code is inside a deadline, a timeout, a shield or a filter.
bool scopes_open(void);

// Raises Heddle::DeadlineExceeded if the deadline in force has passed: from then on each wait must fail. In a task also
// raises what else is pending (a cancellation, an expired Timeout).
void deadline_check(void);

// The same before a request whose answer would be waited for, without a look at anything but the time as long as no
// deadline has passed: nobody would learn what became of the request.
void deadline_refuse_late(void);

// Call this before code gets the error of a task that it has waited for. A deadline that has ended the task, and is
// over for this code, too, then counts as having failed a wait of this code: the task's error may be the first of both.
void deadline_joined(VALUE error);

// Returns whether a scope raised this exception: Heddle.deadline, Heddle.shield, or Timeout.timeout on Heddle's timers.
bool deadline_raised(VALUE error);

#endif
