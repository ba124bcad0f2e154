// What binds the code that runs now, for whatever waits by itself (a stream's poll, a connect): with a scheduler and
// without.
#ifndef HEDDLE_SCOPE_DEADLINE_SCOPE_H
#define HEDDLE_SCOPE_DEADLINE_SCOPE_H

#include "deadline.h"

// The earliest deadline of the running fiber's task, or of the running thread outside of any; what lies outside of a
// shield does not count. DEADLINE_NEVER without one. Wait no longer than that, then call deadline_check.
deadline_t deadline_in_force(void);

// Raises Heddle::DeadlineExceeded if the deadline in force has passed: each wait, the first and every later one, must fail
// then. In a task also what else is pending for it (a cancellation, an expired Timeout).
void deadline_check(void);

// Whether a scope has raised this exception: Heddle.deadline, Heddle.shield, or Timeout.timeout on Heddle's timers.
bool deadline_raised(VALUE error);

#endif
