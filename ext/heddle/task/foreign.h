// Tasks under a foreign scheduler, through its public hooks alone.
#ifndef HEDDLE_TASK_FOREIGN_H
#define HEDDLE_TASK_FOREIGN_H

#include "task/task.h"

// Starts the task by Fiber.schedule.
void foreign_start(struct task *task);

// Raises Heddle::Cancellation in the task: through the scheduler's fiber_interrupt (a hook of Ruby 4.0) or raise if it
// has one of them, otherwise through Fiber#raise.
void foreign_cancel(struct task *task);

// The task that the current fiber runs, or NULL.
struct task *foreign_current_task(void);

// The scopes of the current fiber: its task's, or its own.
struct scope_chain *foreign_chain(void);

// Starts a fiber of the foreign scheduler that watches a scope of the current fiber, and raises in the current fiber as
// foreign_cancel does: no hook reports each wait.
void foreign_watch(struct scope *scope);

// For scopes of fibers of a foreign scheduler.
extern const struct scope_host foreign_scope_host;

#endif
