// An external task: a task of another library (an Async::Task), on a fiber that the library made and that runs the
// library's own code to its end. A Heddle::Task stands for it: it is listed and dumped, has deadlines, and belongs to a
// run.
#ifndef HEDDLE_TASK_EXTERNAL_H
#define HEDDLE_TASK_EXTERNAL_H

#include "task/worker_fiber.h"

// Returns whether the library's task serves others, and ends with the last of them.
bool external_is_transient(VALUE external);

// What ties an external task to the code that starts it.
struct external_bonds {
    VALUE run;     // the run that waits for its end, or nil
    bool inherits; // the deadline and the filters in force here bind the external task
};

// Runs the external task's new fiber at once; the caller has its order_beside_external.
void external_start(struct loop *loop, VALUE fiber, VALUE external, const struct external_bonds *bonds);

// Runs the external task's block at once, on a fiber that has run other tasks if there is one; else like
// external_start.
void external_run(struct loop *loop, VALUE block, VALUE external, const struct external_bonds *bonds);

// Unties an external task that has started.
void external_release(struct task *task);

// If the external task is inside of a shield: the exception, by which the library stops it, is raised after the shield.
// Returns false otherwise.
bool external_put_off(struct task *task, VALUE exception);

#endif
