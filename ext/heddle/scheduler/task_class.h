// Heddle::Task, the Ruby class that binds a task.
#ifndef HEDDLE_SCHEDULER_TASK_CLASS_H
#define HEDDLE_SCHEDULER_TASK_CLASS_H

#include "task/task.h"

struct task *task_of(VALUE object);

// A new task of the run (or nil), listed in `loop` (NULL under a foreign scheduler). `inherits`: the deadline in force here binds it.
VALUE task_create(VALUE block, VALUE name, VALUE scheduler, struct loop *loop, VALUE run, bool inherits);

// Takes it off its loop's list: it has ended.
void task_unlist(struct task *task);

// It never started: as if it had not been created.
void task_forget(struct task *task);

// The task whose code runs now, or NULL.
struct task *task_current(void);

void Init_heddle_task(void);

#endif
