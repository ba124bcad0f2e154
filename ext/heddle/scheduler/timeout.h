// What Timeout.timeout does, on our timers: its exceptions are raised once, and without one of the caller's own nothing
// inside can rescue it.
#ifndef HEDDLE_SCHEDULER_TIMEOUT_H
#define HEDDLE_SCHEDULER_TIMEOUT_H

#include "scope/scope.h"

// Calls the running method's block with `seconds`, and raises once they are over: the class or exception, or where that
// is nil Timeout::Error, which nothing inside can rescue. `message` or nil.
VALUE timeout_yield(VALUE seconds, VALUE exception, VALUE message);

#endif
