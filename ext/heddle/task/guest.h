// A guest: a task of another library (an Async::Task), on a fiber that the library made and that runs the library's own
// code to its end. A Heddle::Task stands for it: it is listed and dumped, has deadlines, and belongs to a run.
#ifndef HEDDLE_TASK_GUEST_H
#define HEDDLE_TASK_GUEST_H

#include "task/task.h"

// When the caller continues that switches to a guest. What runs in place of the library's own loop (code outside of any
// task, or an object that was pushed) does so as soon as the guest waits, because there a fiber that waits switches to
// the loop. Async 2.23 wakes all waiters of a notification so, one right after the other.
enum callers_turn turn_beside_guest(const struct loop *loop);

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

// The guest's block was left by an exception that the library does not keep, or an object that was pushed has raised
// one: raises it where the loop was started.
void guest_failed(struct task *task, VALUE error);

// The guest's fiber has ended.
void guest_ended(struct task *task);

// If the guest is inside of a shield: the exception, by which the library stops it, is raised after the shield. Returns
// false otherwise.
bool guest_put_off(struct task *task, VALUE exception);

#endif
