// Heddle::Run: the tasks of one Heddle.run. It ends when its block and all its tasks have ended.
#ifndef HEDDLE_TASK_RUN_H
#define HEDDLE_TASK_RUN_H

#include "task/cancel.h"

enum { FAILURES_KEPT = 64 };

struct run {
    VALUE block;
    struct task_list tasks;
    VALUE main;                    // the task that runs the block
    VALUE failures[FAILURES_KEPT]; // tasks that failed, in order; an Array could fail to grow while a task ends
    size_t failed;
    VALUE fatal; // an error that ends the whole run: the block's own, SystemExit, a signal; or nil
    VALUE waiters;
    struct cancelling cancelling;
    unsigned forks; // fork_count() at the start: in a child of fork the tasks are the parent's, and never end
};

static inline struct run *run_of(VALUE object)
{
    return RTYPEDDATA_DATA(object); // a receiver of our own method, or a task's own
}

#endif
