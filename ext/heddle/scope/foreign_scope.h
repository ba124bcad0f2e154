// Scopes of fibers of a foreign scheduler, through its public hooks alone: no hook reports each wait.
#ifndef HEDDLE_SCOPE_FOREIGN_SCOPE_H
#define HEDDLE_SCOPE_FOREIGN_SCOPE_H

#include "cancel/chain.h"

// The scopes of the current fiber: its task's, or its own.
struct scope_chain *foreign_chain(void);

// Raises the error in a fiber of the scheduler: through the scheduler's fiber_interrupt (a hook of Ruby 4.0) or raise,
// if it has one of them, otherwise through Fiber#raise.
void foreign_interrupt(VALUE scheduler, VALUE fiber, VALUE error);

// Starts a fiber of the scheduler that watches a scope of the current fiber, and raises in the current fiber. May raise
// after closing the scope.
void foreign_watch(struct scope *scope);

// The scope was opened: watches it if need be.
void foreign_scope_opened(struct scope *scope);

// The scope was closed: wakes its watcher, which then ends.
void foreign_scope_closed(const struct scope *scope);

#endif
