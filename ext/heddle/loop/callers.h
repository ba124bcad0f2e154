// Which method of Ruby's has called the running hook: some hooks mean different things to different callers.
#ifndef HEDDLE_LOOP_CALLERS_H
#define HEDDLE_LOOP_CALLERS_H

#include <ruby.h>
#include <stdbool.h>

// Of kernel_sleep: whether Kernel#sleep called it, which must last. Mutex#sleep, and so ConditionVariable#wait, may end
// early. Takes about a microsecond.
bool called_by_kernel_sleep(void);

// Of block: whether it waits for a Mutex that Mutex#sleep takes again. Nothing may interrupt that wait, for whoever
// called Mutex#sleep relies on having the Mutex afterwards, in `ensure` as well. Takes microseconds where the blocker
// is a Mutex.
bool called_by_relock(VALUE blocker);

#endif
