// Raises in our tasks: cancellations, and deadlines that have passed.
#ifndef HEDDLE_TASK_INTERRUPT_H
#define HEDDLE_TASK_INTERRUPT_H

#include "task/task.h"

// Returns whether the task's next wait must raise something.
bool task_interrupted(const struct task *task);

static inline bool task_pending(const struct task *task)
{
    return (task->owner.cancel_pending || task->chain->innermost) && task_interrupted(task);
}

// Raises what is pending: a cancellation first, then the outermost scope whose time is over. Returns if nothing is
// pending.
void task_raise_pending(struct task *task);

// Raises a pending cancellation, unless a shield holds it back.
void task_raise_cancellation(struct task *task);

// The task is about to park: arms the timers of those of its scopes that have none yet.
void task_arm_deadlines(struct task *task);

// Called after a Mutex is relocked: raises what the wait for the Mutex put off.
void task_raise_deferred(struct task *task);

// For scopes of a task on a loop of ours.
extern const struct scope_host task_scope_host;

#endif
