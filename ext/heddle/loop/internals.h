// What the files of the loop share among themselves: switching.c (whose turn it is), descriptors.c (who waits for
// which), parking.c (how a fiber waits), selection.c (for several descriptors), starting.c (how a fiber starts another
// one), admission.c (what ends without parking), unblock.c (how a blocked fiber goes on), outside.c (what others do to a
// fiber that waits), fall_back.c (when the kernel refuses a backend), loop.c (the loop's life).
#ifndef HEDDLE_LOOP_INTERNALS_H
#define HEDDLE_LOOP_INTERNALS_H

#include "loop/loop.h"

// ---- switching.c

// Behind all that is ready.
void ready_push(struct loop *loop, struct loop_wait *wait);

// For a fiber that starts another one: in front of what is ready, unless the others are due to have a turn.
void ready_push_starter(struct loop *loop, struct loop_wait *wait);
void ready_remove(struct loop *loop, struct loop_wait *wait);

// The wait is over, for whatever reason; its fiber runs when its turn comes.
void loop_wake(struct loop *loop, struct loop_wait *wait);

// Whether what is in flight gets a look before the next ready fiber runs: after some dispatches, and after a
// millisecond of the processor.
bool poll_due(const struct loop *loop);

// Work that does not wait goes on for longer than dispatches do: makes a look due once a millisecond has passed, by the
// clock.
void poll_if_late(struct loop *loop);

// Runs others until `self` is dispatched.
void switch_away(struct loop *loop, struct loop_wait *self);

// Transfers to a fiber that has not run yet, whose block gets the argument, or is not in the ready queue.
void switch_to(struct loop *loop, VALUE fiber, VALUE argument);

// ---- parking.c

// What park leaves behind for its caller; the record itself is recycled by then.
struct parking {
    struct loop *loop;
    struct loop_wait *wait;
    int64_t span;
    short revents;
    int error;
    bool completed;
    bool keeps_result;            // the turn is given away after an operation whose result is not to be lost
    struct loop_wait *outer_wait; // of the same task: a trap handler that waits
    VALUE start;                  // a fiber to run at once, or 0; its block gets …
    VALUE argument;               // … this
    void (*enter)(struct loop *loop, void *argument); // in place of `start`: switches to another fiber; or NULL
    void *enter_argument;
    VALUE exception; // was raised in the waiting fiber by somebody, or 0
    VALUE blocker;   // of a WAIT_BLOCK: what for, or 0
    bool timed_out;
    unsigned forks; // where the record belongs
};

// Takes the record of a wait, once what is pending was raised.
void parking_begin(struct parking *parking, enum wait_kind kind);

// Until the wait is over; releases its record. Raises what was sent to the owner only if the wait did not complete:
// whoever completed it (a Mutex that was handed over, a byte that arrived) must not be forgotten. The next wait raises
// then.
void park(struct parking *parking);

// However the fiber got here: nothing may point to the record any more.
void parking_detach(struct loop *loop, struct loop_wait *wait);

// ---- starting.c

// Calls `enter`, which switches to another fiber of this loop; the caller is ready meanwhile, as one that starts a
// fiber.
void step_aside(struct loop *loop, void (*enter)(struct loop *loop, void *argument), void *argument);

// ---- unblock.c

// Lets all blocked fibers look again whether what they wait for is there: Ruby has no scheduler to tell while the loop
// is detached from its thread.
void recheck_blocked(struct loop *loop);

// Whether it waits for a thread that lives. A wake-up too many must not end such a wait: Thread#join of Ruby 3.3 takes
// it for the end of its limit, with or without one, and returns nil.
bool waits_for_thread(const struct loop_wait *wait);

// ---- descriptors.c

// What `found` means to who asked for `asked`: an error or a hang-up answers whatever was asked; the next read or write
// will tell which it is.
short descriptor_answer(short asked, short found);

// 0 or the errno that the wait ends with at once. May raise NoMemoryError; descriptor_unlink undoes what was done.
int descriptor_arm(struct loop *loop, struct loop_wait *wait);

// All that wait for it, linked by fd_next; or NULL.
struct loop_wait *descriptor_waits(const struct loop *loop, int descriptor);

// Harmless for a wait that is not linked.
void descriptor_unlink(struct loop *loop, struct loop_wait *wait);

// The wait is over, by these events or this errno.
void descriptor_fire(struct loop *loop, struct loop_wait *wait, short revents, int error);

// ---- fall_back.c

// The backend's wait failed with this errno: goes on with the next best, which is asked for all that is waited for.
// Raises SystemCallError where there is none.
void loop_fall_back(struct loop *loop, int error);

#endif
