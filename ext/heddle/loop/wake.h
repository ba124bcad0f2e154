// Waking of waiting fibers, and exceptions for them. With the GVL; from any thread only where the comment says so.
#ifndef HEDDLE_LOOP_WAKE_H
#define HEDDLE_LOOP_WAKE_H

#include "loop/loop.h"

// Any thread. Ends that fiber's loop_block; for a fiber that does not wait, ends its next one, see pending_wakeup.h.
// Ignores mistaken calls. May raise NoMemoryError.
void loop_unblock(struct loop *loop, VALUE fiber);

// Like loop_unblock, for a fiber that checks for work right before it waits: nothing between the check and the wait may
// let another thread run.
void loop_unblock_parked(struct loop *loop, VALUE fiber);

// Wakes the owner's innermost wait, in which the owner's fiber raises what is pending (owner_raise_pending) as
// soon as it runs. An owner that does not wait raises at its next wait.
void loop_interrupt_owner(struct loop *loop, struct wait_owner *owner);

// Any thread. If code outside of any task waits in that thread's loop: raises there what is pending for it, and returns
// true.
bool loops_interrupt_root(VALUE thread);

// Returns whether the fiber itself waits in this loop, or is an idle worker fiber.
bool loop_waits(struct loop *loop, VALUE fiber);

// Runs the owner's waiting fiber at once, so that it raises what is pending. The caller's turn comes soon. Does nothing
// if the fiber would not raise now.
void loop_interrupt_owner_now(struct loop *loop, struct wait_owner *owner);

// Raises the exception in a waiting fiber of this loop: on the loop's own thread, at once. False for a fiber that does
// not wait here.
bool loop_raise(struct loop *loop, VALUE fiber, VALUE exception, enum resume_order order);

// Like loop_raise, from any thread: raises when the fiber runs next.
bool loop_interrupt_fiber(struct loop *loop, VALUE fiber, VALUE exception);

// Raises the exception in the wait of the code outside of any task, unless one is to be raised there already; whatever
// that wait was for. That code runs before all ready fibers.
void loop_raise_at_root(struct loop *loop, VALUE exception);

// Kills a fiber that waits for a Mutex, as Fiber#kill does. If the fiber reacquires the Mutex, it is killed afterwards.
// False for any other fiber.
bool loop_kill(struct loop *loop, VALUE fiber);

// In place of an exception: Fiber#kill.
#define LOOP_KILL Qtrue

// A fiber that reacquires a Mutex defers what these three functions raise. Raises the first such exception of the
// running fiber, or forgets all of them.
void loop_raise_deferred(struct loop *loop);
void loop_forget_deferred(struct loop *loop);

#endif
