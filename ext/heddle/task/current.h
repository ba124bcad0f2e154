// The running task.
#ifndef HEDDLE_TASK_CURRENT_H
#define HEDDLE_TASK_CURRENT_H

#include "loop/context.h"
#include "task/task.h"

// The task whose code runs now, or NULL.
struct task *task_current(void);

#endif
