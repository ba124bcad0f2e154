// Tasks under another scheduler, through its public hooks alone.
#ifndef HEDDLE_TASK_OTHER_SCHEDULER_H
#define HEDDLE_TASK_OTHER_SCHEDULER_H

#include "task/task.h"

// Starts the task by Fiber.schedule.
void other_scheduler_start(struct task *task);

#endif
