// Waits of the running fiber. Each may run other fibers, and may raise what is pending for the fiber's owner.
#ifndef HEDDLE_LOOP_PARK_H
#define HEDDLE_LOOP_PARK_H

#include "loop/loop.h"

// Waits until loop_unblock names the fiber. Returns false when the span (nanoseconds, DEADLINE_NEVER) is over.
// `blocker`: the object waited for, or 0. Only this kind of wait counts as a deadlock when nothing is left that could
// end it.
bool loop_block(struct loop *loop, VALUE blocker, int64_t span);

// Like loop_block, for a fiber that sleeps. A pending wakeup ends the sleep only if Mutex#sleep called the hook.
bool loop_sleep(struct loop *loop, int64_t span);

// Waits until the descriptor is ready for one of poll(2)'s `events`. Returns the ready events, 0 when the span is over,
// or -errno.
int loop_wait_descriptor(struct loop *loop, int descriptor, short events, int64_t span);

// A hang-up or an error ends any wait. Asks the kernel again which of the `asked` events there are, as Ruby reports
// them without a scheduler: urgent data (POLLPRI) is neither. Perhaps none.
short loop_urgent(struct loop *loop, int descriptor, short asked);

// Waits until one of `count` descriptors is ready; fills in revents as poll(2) does. Returns how many are ready, 0 when
// the span is over, or -errno.
struct pollfd;
int loop_wait_any(struct loop *loop, struct pollfd *descriptors, size_t count, int64_t span);

// Like loop_wait_any, but a note that a native thread posts also ends the wait. `expect` gets the note's key, and must
// not raise. Without descriptors only the note ends the wait.
int loop_wait_any_or_note(struct loop *loop, struct pollfd *descriptors, size_t count, int64_t span,
                          void (*expect)(void *argument, uint64_t key), void *argument);

// Yields to the other ready fibers and returns after their turns.
void loop_yield(struct loop *loop);

// Yields to other threads, too. Ruby raises the thread's interrupts at such a turn, so it is one of the code outside of
// all tasks, to which interrupts belong.
void loop_yield_to_threads(struct loop *loop);

// For code outside of any task that runs the loop until its own condition holds. Waits until `loop_unblock` names the
// fiber, the span is over, or an interrupt has come, which is left pending if the caller masks it. With `polls`, each
// poll of the kernel that made a fiber ready, or that did not sleep, ends the wait, too.
void loop_attend(struct loop *loop, int64_t span, bool polls);

// Waits until loop_resume names the fiber, and returns the value given there; or until loop_unblock does: nil.
VALUE loop_await_resume(struct loop *loop);

// The wait that ends when this timer of a loop is due, or NULL for a deadline's.
const struct loop_wait *wait_of_timer(const struct timer *timer);

#endif
