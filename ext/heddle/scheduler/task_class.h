// Heddle::Task, the Ruby class that binds a task.
#ifndef HEDDLE_SCHEDULER_TASK_CLASS_H
#define HEDDLE_SCHEDULER_TASK_CLASS_H

void Init_heddle_task_class(void);

#endif
