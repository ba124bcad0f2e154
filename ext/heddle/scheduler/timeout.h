// Timeout.timeout on our timers. Its exceptions are raised once; without an exception of the caller's own, nothing
// inside the block can rescue the one that ends it.
#ifndef HEDDLE_SCHEDULER_TIMEOUT_H
#define HEDDLE_SCHEDULER_TIMEOUT_H

#include "scope/scope.h"

// Yields `seconds` to the running method's block, and raises once they are over: the given class or exception, or for
// nil a Timeout::Error that nothing inside can rescue. `message` may be nil.
VALUE timeout_yield(VALUE seconds, VALUE exception, VALUE message);

#endif
