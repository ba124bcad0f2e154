// Tasks under a foreign scheduler, through its public hooks alone.
#ifndef HEDDLE_TASK_FOREIGN_H
#define HEDDLE_TASK_FOREIGN_H

#include "task/task.h"

// Starts the task by Fiber.schedule.
void foreign_start(struct task *task);

#endif
