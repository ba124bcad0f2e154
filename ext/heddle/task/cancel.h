// Ends tasks together: those that refuse to end are cancelled again, and finally given up.
#ifndef HEDDLE_TASK_CANCEL_H
#define HEDDLE_TASK_CANCEL_H

#include "os/deadline.h"
#include "task/task_end.h"

#define CANCEL_GRACE 5000000000 // nanoseconds, the default: lib/heddle/run.rb has the same

enum { CANCEL_ROUNDS = 3 }; // how often tasks are cancelled before they are given up

// Tasks that are to end together: a run's, a scheduler's.
struct cancelling {
    VALUE owner;
    const struct task_list *tasks;
    void (*wait)(VALUE owner, deadline_t until); // waits for the last task's end; may return early
    int64_t grace;                               // nanoseconds from one cancel to the next
    unsigned rounds;                             // so far; each of the first CANCEL_ROUNDS is a cancel
    unsigned failures;                           // rounds in a row that failed before they waited
    unsigned forks;                              // fork_count() at the start
    bool late;                                   // the last round ended with its time, not with an interrupt
    bool cancelled;                              // the tasks were cancelled just now, before the first round
};

// Cancels all tasks and waits until they have ended. Their clean-up has `grace`, plus the time of the shields that they
// are in, before they are cancelled again, CANCEL_ROUNDS times in all. Tasks that still run are then given up, with a
// warning that says where each of them is. An interrupt meanwhile cancels again at once; the last one is raised in the
// end. Interrupts alone give up no task before its shields end, or before it has run since it was cancelled.
void cancel_and_wait(struct cancelling *cancelling);

#endif
