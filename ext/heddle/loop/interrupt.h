// Raises in the owners of waits: cancellations, and deadlines that have passed.
#ifndef HEDDLE_LOOP_INTERRUPT_H
#define HEDDLE_LOOP_INTERRUPT_H

#include "cancel/chain.h"

// Returns whether the owner's next wait must raise something.
bool owner_interrupted(const struct wait_owner *owner);

// The same, at once for an owner without scopes.
static inline bool owner_pending(const struct wait_owner *owner)
{
    return (owner->cancel_pending || owner->chain->innermost) && owner_interrupted(owner);
}

// Raises what is pending: a cancellation first, then the outermost scope whose time is over. Returns if nothing is
// pending.
void owner_raise_pending(struct wait_owner *owner);

// A new Heddle::Cancellation that names the owner.
VALUE owner_cancellation(const struct wait_owner *owner);

// Raises a pending cancellation, unless a shield holds it back.
void owner_raise_cancellation(struct wait_owner *owner);

// Called after a Mutex is reacquired: raises what the wait for the Mutex put off.
void owner_raise_deferred(struct wait_owner *owner);

// The owner is about to park: arms the timers of those of its scopes that have none yet. May raise NoMemoryError.
void owner_arm_deadlines(struct wait_owner *owner);

// Arms the timer of a task's open scope, which has none. May raise NoMemoryError.
void owner_arm_scope(struct scope *scope);

#endif
