// The start and the end of a task, in the trace of its loop.
#ifndef HEDDLE_TASK_TASK_TRACE_H
#define HEDDLE_TASK_TASK_TRACE_H

#include "task/task.h"

// Puts the task's start, with its name or the place of its block, if the loop has a trace. May run Ruby code, and raise
// what interrupts it.
void task_trace_start(struct task *task);

// Puts its end; the loop has a trace.
void task_trace_end(const struct task *task);

#endif
