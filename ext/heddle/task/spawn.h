// Heddle.spawn, and how pools start their tasks.
#ifndef HEDDLE_TASK_SPAWN_H
#define HEDDLE_TASK_SPAWN_H

#include "heddle.h"

// Starts `block` as a task on the thread's scheduler, ours or another. `run`: the task's Heddle::Run, nil, or
// Qundef for the running task's run.
VALUE task_spawn(VALUE block, VALUE name, VALUE run);

void spawn_define(VALUE task_class);

#endif
