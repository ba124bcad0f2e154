// Heddle::Scheduler, the Ruby class that binds a loop and its tasks to Fiber::Scheduler's hooks.
#ifndef HEDDLE_SCHEDULER_SCHEDULER_H
#define HEDDLE_SCHEDULER_SCHEDULER_H

void Init_heddle_scheduler(void);

#endif
