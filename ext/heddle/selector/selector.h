// What io-event calls a selector: another scheduler's loop fiber asks it for events, and it switches to the fibers that
// wait. It has no timers, no tasks and no deadlines: these are the other scheduler's.
#ifndef HEDDLE_SELECTOR_SELECTOR_H
#define HEDDLE_SELECTOR_SELECTOR_H

#include "loop/poller.h"

// Two lists of records. A fiber in `queue` has yielded or was pushed there; a fiber in `ended` waits for a descriptor,
// and its wait is over. Each fiber removes its own record when it leaves, however it is resumed; a record that was
// pushed belongs to no fiber.
struct selector {
    struct poller poller; // first, so that a poller is found to be a selector's
    VALUE self;
    VALUE fiber; // the loop fiber
    struct wait_list queue;
    struct wait_list ended;
    int64_t idle;     // nanoseconds that the last select slept
    uint32_t wakeups; // calls of #wakeup: one that comes just before the sleep is not lost
    unsigned forks;   // fork_count() when it was opened: identifies the process that owns it
    bool closed;      // by #close
};

// The selector of a Ruby object. Raises IOError if it is closed. In a child of fork it begins anew.
struct selector *selector_open(VALUE self);

// ---- selector_turns.c

// Switches to the fiber, unless it has ended; it may be another object that answers to `alive?` and `transfer`. Returns
// what the one that switches back gives.
VALUE selector_switch_to(VALUE fiber, int argc, const VALUE *argv);

// Switches to the loop fiber, until something resumes the caller; in the loop fiber itself does nothing.
VALUE selector_transfer(struct selector *selector);

// Like selector_transfer, but the next select resumes the caller.
VALUE selector_yield(struct selector *selector);

// Switches to the fibers that stand in the queue now. What they push waits for the next flush, and what they remove is
// not resumed. Returns how many had their turn.
int selector_flush(struct selector *selector);

// Returns whether a fiber stands in the queue.
bool selector_has_turns(const struct selector *selector);

// ---- selector.c

// Lets the loop fiber run until the descriptor is ready for one of poll(2)'s events, and returns the ready events; 0 if
// something else resumed the fiber. Raises IOError if the IO is closed meanwhile, and SystemCallError.
short selector_wait(struct selector *selector, VALUE fiber, int descriptor, short events);

#endif
