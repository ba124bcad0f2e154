// Fibers that run at once: new ones, those that were idle between two tasks, and those that wait.
#ifndef HEDDLE_LOOP_START_H
#define HEDDLE_LOOP_START_H

#include "loop/loop.h"

// Switches at once to a fiber that waits in this loop, and ends its wait. False for a fiber that does not wait here.
bool loop_resume(struct loop *loop, VALUE fiber, VALUE value, enum resume_order order);

// Runs a new fiber at once, so that its request is in flight before the starting fiber continues. The new fiber's block
// gets the argument, which Ruby keeps alive as long as the fiber, and finds `owner` in loop->owner.
void loop_start(struct loop *loop, struct wait_owner *owner, VALUE fiber, VALUE argument, enum resume_order order);

// Like loop_start, with an idle worker fiber, which continues for `owner`. loop->idle must not be NULL. Returns the
// worker fiber.
VALUE loop_continue_idle(struct loop *loop, struct wait_owner *owner, enum resume_order order);

// Lets an idle worker fiber continue for `owner` behind all ready fibers. loop->idle must not be NULL. Does not raise.
void loop_queue_idle(struct loop *loop, struct wait_owner *owner);

// Parks the calling fiber until loop_continue_idle or loop_queue_idle takes it; then loop->owner is the new owner.
void loop_idle(struct loop *loop);

// Returns whether the fiber is an idle worker fiber.
bool loop_keeps_idle(struct loop *loop, VALUE fiber);

// Yields to the caller's block, which switches to another fiber of this loop. The caller's turn comes soon.
void loop_step_aside(struct loop *loop);

#endif
