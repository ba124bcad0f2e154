// A task's life: its block runs on a fiber, and its end is told to whom it concerns.
#ifndef HEDDLE_TASK_TASK_RUN_H
#define HEDDLE_TASK_TASK_RUN_H

#include "task/task.h"

// Runs its block on the current fiber, to its end. Raises only what no rescue stops (Thread#kill).
void task_run(struct task *task);

// After task_run: the queued task that its on_end wants to follow on the same fiber, or nil.
VALUE task_successor(struct task *task);

// It has ended: tells those that wait, its run, and the loop; reports an error that nobody asked for.
void task_end(struct task *task, enum task_status status, VALUE result);

// SystemExit, a signal, NoMemoryError: what ends everything, not one task.
bool is_fatal(VALUE error);

// It does not end: nobody waits for it any more.
void task_give_up(struct task *task);

#endif
