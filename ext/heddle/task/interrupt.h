// What is raised in a task of ours: cancellations, and deadlines that have passed.
#ifndef HEDDLE_TASK_INTERRUPT_H
#define HEDDLE_TASK_INTERRUPT_H

#include "task/task.h"

// Whether something is to be raised in the task at its next wait.
bool task_interrupted(const struct task *task);

static inline bool task_pending(const struct task *task)
{
    return (task->owner.cancel_pending || task->chain->innermost) && task_interrupted(task);
}

// Raises it: a cancellation first, then the outermost scope that is over. Returns when there is nothing.
void task_raise_pending(struct task *task);

// Raises a cancellation that is pending, unless a shield holds it up.
void task_raise_cancellation(struct task *task);

// Arms the timers of scopes that have none yet: the task is about to park.
void task_arm_deadlines(struct task *task);

// Once the Mutex is taken again: raises what was not raised meanwhile.
void task_raise_deferred(struct task *task);

// For the scopes of a task that a loop of ours runs.
extern const struct scope_host task_scope_host;

#endif
