// Heddle.deadline, Heddle.shield, Heddle.remaining.
#ifndef HEDDLE_SCHEDULER_DEADLINE_METHODS_H
#define HEDDLE_SCHEDULER_DEADLINE_METHODS_H

void Init_heddle_deadline_methods(void);

#endif
