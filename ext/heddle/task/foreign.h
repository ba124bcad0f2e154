// Tasks under a foreign scheduler, through its public hooks alone.
#ifndef HEDDLE_TASK_FOREIGN_H
#define HEDDLE_TASK_FOREIGN_H

#include "task/task.h"

// Starts the task by Fiber.schedule.
void foreign_start(struct task *task);

// Raises Heddle::Cancellation in the task, see foreign_interrupt.
void foreign_cancel(struct task *task);

// The task that the current fiber runs, or NULL.
struct task *foreign_current_task(void);

#endif
