// Where the running code runs: on a loop of ours, under a foreign scheduler, or in a plain thread. Everything that
// waits asks here.
#ifndef HEDDLE_TASK_CURRENT_H
#define HEDDLE_TASK_CURRENT_H

#include "loop/loop.h"
#include "task/task.h"

struct place {
    VALUE scheduler;   // nil in a plain thread
    struct loop *loop; // the scheduler's loop if it is ours; else NULL
};

// The place of the running fiber. A blocking fiber, such as a thread's first one, has no scheduler.
struct place place_of_fiber(void);

// The place of the running thread, even if the running fiber is blocking. A loop of ours runs below any waiting fiber.
struct place place_of_thread(void);

// The task whose code runs now, or NULL.
struct task *task_current(void);

#endif
