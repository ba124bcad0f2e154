// Heddle::Scheduler, the Ruby class that binds the loop to Fiber::Scheduler's hooks.
#ifndef HEDDLE_SCHEDULER_SCHEDULER_H
#define HEDDLE_SCHEDULER_SCHEDULER_H

#include "loop/loop.h"

// For hooks: the loop of `self`, which belongs to the calling thread from now on. Raises as loop_enter does.
struct loop *scheduler_entered(VALUE self);

// The loop of a Heddle::Scheduler; NULL for nil and for a foreign scheduler. Does not enter it.
struct loop *scheduler_loop(VALUE scheduler);

// As scheduler_loop, but NULL for a subclass of Heddle::Scheduler, too, which may have overridden hooks.
struct loop *scheduler_plain_loop(VALUE scheduler);

// An Array of the tasks that have not ended, in the order of their start.
VALUE scheduler_tasks(VALUE scheduler);

void Init_heddle_scheduler(void);

#endif
