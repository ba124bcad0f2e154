// A guest: a task of another library (an Async::Task), on a fiber that the library made and that runs the library's own
// code to its end. A Heddle::Task stands for it: it is listed and dumped, has deadlines, and belongs to a run.
#ifndef HEDDLE_TASK_GUEST_H
#define HEDDLE_TASK_GUEST_H

#include "task/worker_fiber.h"

// Returns whether the library's task serves others, and ends with the last of them.
bool guest_is_transient(VALUE guest);

// What ties a guest to the code that starts it.
struct guest_bonds {
    VALUE run;     // the run that waits for its end, or nil
    bool inherits; // the deadline and the filters in force here bind the guest
};

// Runs the guest's new fiber at once; the caller has its turn_beside_guest.
void guest_start(struct loop *loop, VALUE fiber, VALUE guest, const struct guest_bonds *bonds);

// Runs the guest's block at once, on a fiber that has run other tasks if there is one; else like guest_start.
void guest_run(struct loop *loop, VALUE block, VALUE guest, const struct guest_bonds *bonds);

// Unties a guest that has started.
void guest_release(struct task *task);

// If the guest is inside of a shield: the exception, by which the library stops it, is raised after the shield. Returns
// false otherwise.
bool guest_put_off(struct task *task, VALUE exception);

#endif
