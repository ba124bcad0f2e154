// Opens and closes cancel scopes: Heddle.deadline, Heddle.shield, Timeout.timeout, and the deadline that a task
// inherits. Also blocks with a filter for connects, which nest and are inherited in the same way.
//
// Opening a scope arms no timer. A task's timers are armed when the task first parks; a thread's are in the helper's
// heap (thread_scope.h). An operation that never waits pays for two clock reads at most.
#ifndef HEDDLE_SCOPE_SCOPE_H
#define HEDDLE_SCOPE_SCOPE_H

#include "cancel/chain.h"
#include "scope/deadline_scope.h"

// Opens the scope in the chain; its time ends at `at`. Raises, before anything has changed, what starting the helper
// may raise.
void scope_open(struct scope *scope, struct scope_chain *chain, deadline_t at);

// Does nothing for a scope that is not open.
void scope_close(struct scope *scope);
// Moves the end of an open SCOPE_TIMEOUT whose time is not over yet.
void scope_move(struct scope *scope, deadline_t at);

void scope_close_all(struct scope_chain *chain);

// The chain of the running task or thread. Raises NoMemoryError when it makes a thread's chain.
struct scope_chain *scope_chain_current(void);

// scope_filters for the running code.
VALUE scope_filters_in_force(void);

// Binds the running code's chain by these filters, as if they were inherited.
void scope_keep_filters(VALUE filters);

// Calls the body, closes the scope however the body ends, and converts errors, see Heddle.deadline. A scope without
// failures becomes a spare for scope_new.
VALUE scope_call(struct scope *scope, VALUE (*body)(VALUE), VALUE argument);

// For our own clean-up, which must wait although a deadline has passed. The body must bound its waits itself.
VALUE deadline_shield(VALUE (*body)(VALUE), VALUE argument);

#endif
