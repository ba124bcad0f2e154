// Finds the Ruby method that called the running hook: some hooks mean different things to different callers.
#ifndef HEDDLE_LOOP_CALLERS_H
#define HEDDLE_LOOP_CALLERS_H

#include <ruby.h>
#include <stdbool.h>

// For the hook kernel_sleep: whether Kernel#sleep called it, whose sleep must last. Mutex#sleep, and so
// ConditionVariable#wait, may end early. Takes about a microsecond.
bool called_by_kernel_sleep(void);

// For the hook process_wait: whether a method of Ruby's waits for a child that it started itself, and that nobody else
// will wait for. Takes about a microsecond.
bool called_by_owner_of_child(void);

// For the hook block: whether its blocker, or 0, is a Mutex.
bool is_mutex(VALUE blocker);

// For the hook block: whether the fiber waits for a Mutex that Mutex#sleep reacquires. Nothing may interrupt that wait:
// callers of Mutex#sleep rely on holding the Mutex afterwards, in `ensure` as well. Takes microseconds when the blocker
// is a Mutex.
bool called_by_reacquire(VALUE blocker);

#endif
