// In which fiber a scope was opened, and whether its code is on its way: a fiber that yields in the middle of a scope
// (an Enumerator that is asked for its next element) takes the scope with it, until it is resumed.
//
// That is asked of other_fibers only: scopes that a nested fiber opened. The fiber that a task or a thread begins with
// cannot yield.
#ifndef HEDDLE_SCOPE_SCOPE_FIBER_H
#define HEDDLE_SCOPE_SCOPE_FIBER_H

#include "scope/scope.h"

// When it is opened, in the running fiber, and before it is linked.
void scope_note_fiber(struct scope *scope, struct scope_chain *chain);

// Whether the running fiber, which is given, can yield. A thread's root cannot, nor a fiber that was transferred to. Takes
// microseconds. May raise an interrupt.
bool fiber_can_yield(VALUE fiber);

// Of a other_fiber: scope_suspended.
bool scope_other_fiber_suspended(const struct scope *scope);

// Whether its fiber has yielded, or nobody can resume it any more: it binds nobody then. Any thread. Of a other_fiber it
// calls Ruby methods.
static inline bool scope_suspended(const struct scope *scope)
{
    return scope->other_fiber && scope_other_fiber_suspended(scope);
}

// Whether its fiber is gone: nobody will ever leave it.
bool scope_abandoned(const struct scope *scope);

#endif
