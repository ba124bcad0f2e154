// Tasks under a scheduler that is not ours, through its public hooks alone.
#ifndef HEDDLE_LOOP_FOREIGN_H
#define HEDDLE_LOOP_FOREIGN_H

#include "loop/task.h"

// Starts the task by Fiber.schedule.
void foreign_start(struct task *task);

// Raises Heddle::Cancellation in it: through fiber_interrupt (the hook of Ruby 4.0) or raise where the scheduler has
// one of them, else by Fiber#raise.
void foreign_cancel(struct task *task);

// The task that the current fiber runs, or NULL.
struct task *foreign_current_task(void);

void Init_heddle_foreign(void);

#endif
