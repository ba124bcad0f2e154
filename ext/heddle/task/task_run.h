// A task's block runs on a fiber.
#ifndef HEDDLE_TASK_TASK_RUN_H
#define HEDDLE_TASK_TASK_RUN_H

#include "task/task_end.h"

// Runs the task's block on the current fiber, to its end. Raises only what no rescue stops (Thread#kill).
void task_run(struct task *task);

// After task_run: the queued task that on_end returns, to run next on the same fiber; or nil. Calls on_end again after
// each interrupt: otherwise a pool would lose one of its places for good. `state` as for protect_next.
VALUE task_successor(struct task *task, int *state);

// Raises a task's error in code that has waited for the task.
RBIMPL_ATTR_NORETURN()
void task_raise_error(VALUE error);

// Raises Heddle::TaskCancelled with that error as its cause.
RBIMPL_ATTR_NORETURN()
void task_raise_cancelled(const struct task *task, VALUE message);

#endif
