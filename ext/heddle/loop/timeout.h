// What Timeout.timeout does, on our timers: its exceptions are raised once, and without one of the caller's own nothing
// inside can rescue it.
#ifndef HEDDLE_LOOP_TIMEOUT_H
#define HEDDLE_LOOP_TIMEOUT_H

#include "loop/scope.h"

// The exception that ends the block of a scope which has none.
VALUE timeout_exit(struct scope *scope);

// It is not to throw any more: its scope is being left.
void timeout_disarm(VALUE exit);

void Init_heddle_timeout(void);

#endif
