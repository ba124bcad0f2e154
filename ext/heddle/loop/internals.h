// Shared by the files of a loop: switching.c (the ready queue and polling), parking.c (how a fiber waits), selection.c
// (waits for several descriptors), descriptor_wait.c (waits for one), hang_up.c (whose peer hangs up while something
// else is waited for), starting.c (how a fiber starts another), without_wait.c (operations that end without parking),
// sending.c (bytes that are sent later), unblock.c (wakes blocked fibers), resume.c (other fibers resume or interrupt a
// waiting one), deferred.c (exceptions that wait until a Mutex is reacquired), loop.c (a loop's life).
#ifndef HEDDLE_LOOP_INTERNALS_H
#define HEDDLE_LOOP_INTERNALS_H

#include "loop/send.h"

// ---- switching.c

// Appends to the ready queue.
void ready_push(struct loop *loop, struct loop_wait *wait);

// Inserts before all others.
void ready_push_first(struct loop *loop, struct loop_wait *wait);

// For a fiber that starts another fiber: inserts at the front of the ready queue, unless the other fibers are due.
void ready_push_starter(struct loop *loop, struct loop_wait *wait);
void ready_remove(struct loop *loop, struct loop_wait *wait);

// Ends the wait, for whatever reason: its fiber becomes ready.
void loop_wake(struct loop *loop, struct loop_wait *wait);

// Returns whether to poll the kernel before the next ready fiber runs: after some dispatches, and after a millisecond.
bool poll_due(const struct loop *loop);

// Work that does not wait runs longer than a dispatch: makes a poll due once a millisecond has passed on the clock.
void poll_if_late(struct loop *loop);

// Runs other fibers until `self` is dispatched.
void switch_away(struct loop *loop, struct loop_wait *self);

// Transfers to a fiber that is not in the ready queue, or has not run yet; the new fiber's block gets the argument.
void switch_to(struct loop *loop, VALUE fiber, VALUE argument);

// ---- parking.c

// The results that park leaves for its caller; the wait record is recycled by then.
struct parking {
    struct loop *loop;
    struct loop_wait *wait;
    int64_t span;
    deadline_t until;                                 // the end of the span, once parked; not set without a limit
    struct loop_wait *outer_wait;                     // the task's enclosing wait: a trap handler may wait inside it
    VALUE outer_fiber;                                // … and its fiber, or 0
    void (*enter)(struct loop *loop, void *argument); // switches to another fiber; or NULL
    void *enter_argument;
    VALUE exception;                        // raised in the waiting fiber by another fiber or thread; or 0
    VALUE value;                            // from loop_resume; or 0
    VALUE blocker;                          // the object that a WAIT_BLOCK waits for, or 0
    struct loop_send *send;                 // done at the end of the wait, if not before; or NULL
    void (*ended)(struct parking *parking); // called before the record is recycled; or NULL
    unsigned forks; // fork_count() when the record was taken: identifies the process that owns the record
    int error;
    enum resume_order order; // of a WAIT_YIELD
    short revents;
    bool completed, timed_out;
    bool at_once;      // raise the exception even if the wait has completed
    bool keeps_result; // the fiber yields after an operation whose result must not be lost
};

// Acquires the wait record, after raising what is pending for the owner.
void parking_begin(struct parking *parking, enum wait_kind kind);

// Parks until the wait is over, and releases its record. Raises what is pending for the owner only if the wait did not
// complete: a completion (a Mutex that was handed over, a byte that arrived) must not be lost. The next wait raises
// then.
void park(struct parking *parking);

// parking_begin and park in one call, for a fiber that yields and stays ready: it runs again behind the fibers that are
// ready now.
void park_ready(struct parking parking);

// Returns whether the wait is over, after park. False if the fiber was woken for an exception that a wait in a trap
// handler has raised meanwhile: then it must wait again, for the rest of the span, which `span` says from now on.
bool parking_over(struct parking *parking);

// Raises in the running fiber the exception that another fiber or thread raised in its wait. `reacquires`: the fiber
// waited for a Mutex that it reacquires; then loop_raise_deferred raises the exception.
void raise_in_wait(struct loop *loop, VALUE exception, bool reacquires);

// Removes every pointer to the record, however the fiber came to the end of its wait.
void parking_detach(struct loop *loop, struct loop_wait *wait);

// Sends the bytes if they are unsent, and takes them off the list. `forked`: only that, since the parent sends them.
void send_end(struct loop *loop, struct loop_send *send, bool forked);

// ---- hang_up.c

// A wait of kind WAIT_HANG_UP has ended. Neither raises nor runs Ruby code.
void hang_up_found(struct loop *loop, struct loop_wait *wait);

// ---- starting.c

// Calls `enter`, which switches to another fiber of this loop. The calling fiber stays ready, for its `turn`.
void step_aside(struct loop *loop, void (*enter)(struct loop *loop, void *argument), void *argument,
                enum resume_order order);

#endif
