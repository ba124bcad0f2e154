// Where the running code runs: on a loop of ours, under another scheduler, or in a plain thread. All that waits asks here.
#ifndef HEDDLE_TASK_CURRENT_H
#define HEDDLE_TASK_CURRENT_H

#include "loop/loop.h"
#include "task/task.h"

struct place {
    VALUE scheduler;   // nil in a plain thread
    struct loop *loop; // of the scheduler, where that is ours; else NULL
};

// Of the running fiber. A thread's first fiber blocks its thread: it is in no scheduler's care.
struct place place_of_fiber(void);

// Of the running thread: also of a fiber that blocks it. A loop of ours runs beneath any fiber that waits.
struct place place_of_thread(void);

// The loop of place_of_fiber, which belongs to the calling thread from now on, or NULL. Raises as loop_enter does.
struct loop *loop_of_fiber(void);

// The task whose code runs now, or NULL.
struct task *task_current(void);

#endif
