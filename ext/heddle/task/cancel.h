// Ending tasks that need not want to: cancel, wait, cancel again, and give up at last.
#ifndef HEDDLE_TASK_CANCEL_H
#define HEDDLE_TASK_CANCEL_H

#include "deadline.h"

struct loop;
struct task;

#define CANCEL_GRACE 5000000000 // nanoseconds, where nobody says otherwise: lib/heddle/run.rb has the same

enum { CANCEL_ROUNDS = 3 }; // how often tasks are cancelled before they are given up

// Tasks that are to end together: a run's, a scheduler's.
struct cancelling {
    VALUE owner;
    VALUE (*tasks)(VALUE owner);                 // those that have not ended, as an Array
    void (*wait)(VALUE owner, deadline_t until); // for the end of the last one; may come back early
    int64_t grace;                               // nanoseconds from one cancel to the next
    unsigned rounds;                             // begun so far
    bool cancelled;                              // they were cancelled just now
};

// Asks the task to stop: Heddle::Cancellation is raised in its wait. `again`: also in one that was asked before and is
// still there. Any thread that holds the GVL.
void task_cancel(struct task *task, bool again);

// Cancels the task of this fiber, so that no `rescue` stops that, and runs the fiber at once where it waits. False for a
// fiber that is no task's.
bool task_kill(struct loop *loop, VALUE fiber);

// How many tasks were cancelled before their start. Their pools look for them when that has changed.
unsigned long task_withdrawals(void);

void cancel_all(VALUE tasks, bool again);

// Cancels all and waits until they have ended: their clean-up has `grace` (and the time of the shields that it is in)
// until they are cancelled again, three times over. What is there then is given up, with a warning that says where it
// is. An interrupt meanwhile cancels again at once, and is raised.
void cancel_and_wait(struct cancelling *cancelling);

#endif
