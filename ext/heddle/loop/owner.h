// The owner of waits: a task, or the code outside of any task. The loop knows this record and asks for the rest through
// functions, so that the loop depends neither on tasks nor on deadlines.
#ifndef HEDDLE_LOOP_OWNER_H
#define HEDDLE_LOOP_OWNER_H

#include "heddle.h"

struct loop;
struct loop_wait;
struct scope;

struct wait_owner {
    VALUE self;                     // the object that keeps this record alive; 0 for a loop's own two owners
    VALUE fiber;                    // the fiber that the owner runs on, or nil
    struct loop *loop;              // NULL under a foreign scheduler
    struct loop_wait *wait;         // its innermost wait that is parked now, or NULL
    struct scope *const *innermost; // where its innermost deadline is kept: the loop checks whether there is one
    uint8_t admitted;               // operations that went through since something became pending, see loop_admit
    bool cancel_pending;            // a cancellation is still to be raised
    bool ends_with_fiber;           // nothing of ours runs at the end of its fiber: the loop reports fiber_ended
    bool deferred;                  // raising was put off by a wait that relocks a Mutex, see callers.h
};

struct owner_functions {
    // Returns whether the owner's next wait must raise something.
    bool (*interrupted)(const struct wait_owner *owner);

    // Raises what is pending: a cancellation first, then the outermost deadline that has passed. Returns if nothing is
    // pending.
    void (*raise_pending)(struct wait_owner *owner);

    // Raises a pending cancellation, unless a shield holds it back.
    void (*raise_cancellation)(struct wait_owner *owner);

    // The owner is about to park: arms the timers of those of its deadlines that have none yet. May raise
    // NoMemoryError.
    void (*arm_deadlines)(struct wait_owner *owner);

    // The fiber of an owner that ends_with_fiber has ended.
    void (*fiber_ended)(struct wait_owner *owner);

    // The calling thread is about to become the loop's owner. May raise before anything has changed.
    void (*adopt)(struct loop *loop);

    // This process is a child of fork: of all owners only the one that forked still runs.
    void (*abandon)(struct loop *loop);
};

#endif
