// Tasks under a scheduler that is not ours, through its public hooks alone.
#ifndef HEDDLE_TASK_FOREIGN_H
#define HEDDLE_TASK_FOREIGN_H

#include "task/task.h"

// Starts the task by Fiber.schedule.
void foreign_start(struct task *task);

// Raises Heddle::Cancellation in it: through fiber_interrupt (the hook of Ruby 4.0) or raise where the scheduler has
// one of them, else by Fiber#raise.
void foreign_cancel(struct task *task);

// The task that the current fiber runs, or NULL.
struct task *foreign_current_task(void);

// The scopes of the current fiber: its task's, or its own.
struct scope_chain *foreign_chain(void);

// Has a fiber of the scheduler's own watch over a scope that is open in the current fiber, and raise in this one, by the
// same hooks as foreign_cancel: there is none that would tell of each wait.
void foreign_watch(struct scope *scope);

// For the scopes of fibers of a scheduler that is not ours.
extern const struct scope_host foreign_scope_host;

#endif
