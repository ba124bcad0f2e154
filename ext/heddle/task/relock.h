// What Mutex#sleep and ConditionVariable#wait do once they have their Mutex again, see doc/adr/0014.
#ifndef HEDDLE_TASK_RELOCK_H
#define HEDDLE_TASK_RELOCK_H

void Init_heddle_relock(void);

#endif
