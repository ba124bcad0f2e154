// Notes the fiber in which a scope was opened, and tells whether the scope binds the running code: a fiber that yields
// inside a scope (an Enumerator asked for its next element) takes the scope with it until the fiber is resumed.
//
// This concerns only scopes with other_fiber: those that a nested fiber opened. The first fiber of a task or a thread
// cannot yield.
#ifndef HEDDLE_CANCEL_SCOPE_FIBER_H
#define HEDDLE_CANCEL_SCOPE_FIBER_H

#include "cancel/chain.h"

// Returns whether this is the fiber that the chain's code starts with. That fiber either runs or waits for a fiber that
// it has resumed, so its scopes always bind. May raise an interrupt.
bool scope_chain_at_home(struct scope_chain *chain, VALUE fiber);

// Called in the running fiber when a scope is opened, before the scope is linked.
void scope_note_fiber(struct scope *scope, struct scope_chain *chain);

// scope_suspended, for a scope with other_fiber.
bool scope_other_fiber_suspended(const struct scope *scope);

// Returns whether the scope's fiber has yielded, or can never be resumed: then the scope does not bind. Any thread.
// Calls Ruby methods for a scope with other_fiber.
static inline bool scope_suspended(const struct scope *scope)
{
    return scope->other_fiber && scope_other_fiber_suspended(scope);
}

// Returns whether the scope's fiber is gone, so that no code will ever leave the scope.
bool scope_abandoned(const struct scope *scope);

#endif
