// Cancelling: task_cancel marks the task and wakes its wait (loop_interrupt_owner); the task's own fiber raises the
// cancellation when it runs (interrupt.h, called by park in loop/parking.c). Tasks that refuse to end are cancelled
// again, and finally given up.
#ifndef HEDDLE_TASK_CANCEL_H
#define HEDDLE_TASK_CANCEL_H

#include "deadline.h"

struct loop;
struct task;

#define CANCEL_GRACE 5000000000 // nanoseconds, the default: lib/heddle/run.rb has the same

enum { CANCEL_ROUNDS = 3 }; // how often tasks are cancelled before they are given up

// Tasks that are to end together: a run's, a scheduler's.
struct cancelling {
    VALUE owner;
    VALUE (*tasks)(VALUE owner);                 // the tasks that have not ended, as an Array
    void (*wait)(VALUE owner, deadline_t until); // waits for the last task's end; may return early
    int64_t grace;                               // nanoseconds from one cancel to the next
    unsigned rounds;                             // cancels so far
    unsigned failures;                           // rounds in a row that failed before they waited
    unsigned forks;                              // fork_count() at the start
    bool cancelled;                              // the tasks were cancelled just now, before the first round
};

// Raises Heddle::Cancellation in the task's current or next wait. `again`: even if the task was cancelled before and
// has not ended. Any thread that holds the GVL.
void task_cancel(struct task *task, bool again);

// Like task_cancel, but raises the exception. The task may be interrupted, and cancelled, again afterwards. Does
// nothing if something else is still to be raised, or in a task of another library.
void task_interrupt(struct task *task, VALUE exception);

// The exception is not raised any more, if it has not been yet.
void task_withdraw(struct task *task, VALUE exception);

// Nobody waits for the task any longer, and its code does not run to its end.
void task_abandon(struct task *task);

// Kills the task of this fiber: cancels it so that no `rescue` stops the cancellation, and runs a waiting fiber at
// once. False if the fiber belongs to no task.
bool task_kill(struct loop *loop, VALUE fiber);

// The number of tasks that were cancelled before their start. A pool looks for such tasks when this number has changed.
unsigned long task_withdrawals(void);

void cancel_all(VALUE tasks, bool again);

// Cancels all tasks and waits until they have ended. Their clean-up has `grace`, plus the time of the shields that they
// are in, before they are cancelled again, CANCEL_ROUNDS times in all. Tasks that still run are then given up, with a
// warning that says where each of them is. An interrupt meanwhile cancels again at once; the last one is raised in the
// end. No number of interrupts gives up a task before its shields end.
void cancel_and_wait(struct cancelling *cancelling);

#endif
