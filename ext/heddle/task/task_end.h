// A task's membership in its loop and its run, its cancel, and its end.
//
// task_cancel marks the task and wakes its wait (loop_interrupt_owner); the task's own fiber raises the cancellation
// when it runs (loop/interrupt.h, called by park in loop/parking.c).
#ifndef HEDDLE_TASK_TASK_END_H
#define HEDDLE_TASK_TASK_END_H

#include "task/task.h"

// From now on the task's loop and the run (or nil) wait for its end.
void task_enlist(struct task *task, VALUE run);

// Ends the task: tells its waiters, its run and its loop; reports an error that no code asked for.
void task_end(struct task *task, enum task_status status, VALUE result);

// The error with which the block ended: of a task that failed; of a cancelled one, what its code made of the
// cancellation, or an error in its clean-up. nil if there is none.
VALUE task_error(const struct task *task);

bool is_cancellation(VALUE error);

// Returns whether the error ends the whole program rather than one task: SystemExit, a signal, NoMemoryError.
bool is_fatal(VALUE error);

// The external task's block was left by an exception that the library does not keep, or an object that was pushed has
// raised one: raises it where the loop was started.
void task_failed_outside(struct task *task, VALUE error);

// The external task's fiber has ended.
void task_fiber_ended(struct task *task);

// Raises Heddle::Cancellation in the task's current or next wait. `again`: even if the task was cancelled before and
// has not ended. Any thread that holds the GVL.
void task_cancel(struct task *task, bool again);

// Like task_cancel, but raises the exception. The task may be interrupted, and cancelled, again afterwards. Does
// nothing if something else is still to be raised, or in a task of another library.
void task_interrupt(struct task *task, VALUE exception);

// The exception is not raised any more, if it has not been yet.
void task_withdraw(struct task *task, VALUE exception);

// Nobody waits for the task any longer, and its code does not run to its end.
void task_abandon(struct task *task);

// An Array of the abandoned tasks of that scheduler.
VALUE tasks_given_up(VALUE scheduler);

// Kills the task of this fiber: cancels it so that no `rescue` stops the cancellation, and runs a waiting fiber at
// once. False if the fiber belongs to no task.
bool task_kill(struct loop *loop, VALUE fiber);

// The number of tasks that were cancelled before their start. A pool looks for such tasks when this number has changed.
unsigned long task_withdrawals(void);

void cancel_all(VALUE tasks, bool again);

// Takes the task from its run, which no longer waits for it.
void task_leave_run(struct task *task);

#endif
