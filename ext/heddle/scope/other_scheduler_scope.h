// Scopes of fibers of another scheduler, through its public hooks alone: no hook reports each wait.
#ifndef HEDDLE_SCOPE_OTHER_SCHEDULER_SCOPE_H
#define HEDDLE_SCOPE_OTHER_SCHEDULER_SCOPE_H

#include "cancel/chain.h"

// The scopes of the current fiber: its task's, or its own.
struct scope_chain *other_scheduler_chain(void);

// Raises the error in a fiber of the scheduler: through the scheduler's fiber_interrupt (a hook of Ruby 4.0) or raise,
// if it has one of them, otherwise through Fiber#raise.
void other_scheduler_interrupt(VALUE scheduler, VALUE fiber, VALUE error);

// Starts a fiber of the scheduler that watches a scope of the current fiber, and raises in the current fiber. May raise
// after closing the scope.
void other_scheduler_watch(struct scope *scope);

// The scope was opened: watches it if need be.
void other_scheduler_scope_opened(struct scope *scope);

// The scope was closed: wakes its watcher, which then ends.
void other_scheduler_scope_closed(const struct scope *scope);

#endif
