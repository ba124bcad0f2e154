// Heddle::Run: the tasks of one Heddle.run. It ends when its block and all its tasks have ended.
#ifndef HEDDLE_TASK_RUN_H
#define HEDDLE_TASK_RUN_H

#include "task/task.h"

void run_add(VALUE run, struct task *task);

// Take the task from its run, however a scheduler that wakes the run's waiters fails. They return the state of what was
// raised meanwhile, for rb_jump_tag, or 0.
int run_remove(VALUE run, struct task *task);
int run_task_ended(VALUE run, struct task *task);

// Returns whether the run itself will raise this task's error, so that the error need not be reported.
bool run_raises_itself(VALUE run, const struct task *task);

#endif
