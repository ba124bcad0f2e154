// What a task is doing, for those who ask: Task#waits_for and so on.
#ifndef HEDDLE_SCHEDULER_TASK_VIEW_H
#define HEDDLE_SCHEDULER_TASK_VIEW_H

#include "heddle.h"

void task_view_define(VALUE task_class);

#endif
