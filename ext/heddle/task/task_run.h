// A task's life: its block runs on a fiber, and then its waiters, run and loop learn of its end.
#ifndef HEDDLE_TASK_TASK_RUN_H
#define HEDDLE_TASK_TASK_RUN_H

#include "task/task.h"

// Runs the task's block on the current fiber, to its end. Raises only what no rescue stops (Thread#kill).
void task_run(struct task *task);

// After task_run: the queued task that on_end returns, to run next on the same fiber; or nil.
VALUE task_successor(struct task *task);

// Ends the task: tells its waiters, its run and its loop; reports an error that no code asked for.
void task_end(struct task *task, enum task_status status, VALUE result);

// The error with which the block ended: of a task that failed; of a cancelled one, what its code made of the
// cancellation, or an error in its clean-up. nil if there is none.
VALUE task_error(const struct task *task);

// Raises Heddle::TaskCancelled with that error as its cause.
RBIMPL_ATTR_NORETURN()
void task_raise_cancelled(const struct task *task, VALUE message);

// Returns whether the error ends the whole program rather than one task: SystemExit, a signal, NoMemoryError.
bool is_fatal(VALUE error);

// The task does not end: makes its loop and its run stop waiting for it.
void task_give_up(struct task *task);

#endif
