// Whose waits these are: a task, or what runs outside of any. The loop knows this much of it and asks the rest through
// functions, so that it depends neither on tasks nor on deadlines.
#ifndef HEDDLE_LOOP_OWNER_H
#define HEDDLE_LOOP_OWNER_H

#include "heddle.h"

struct loop;
struct loop_wait;
struct scope;

struct wait_owner {
    VALUE self;                     // the object that keeps this record alive; 0 for the two that a loop has of its own
    VALUE fiber;                    // the fiber that it runs on, or nil
    struct loop *loop;              // NULL under a foreign scheduler
    struct loop_wait *wait;         // its innermost wait that is parked now, or NULL
    struct scope *const *innermost; // where its innermost deadline is kept: the loop asks whether there is one
    uint8_t admitted;               // operations that went through since something is pending, see loop_admit
    bool cancel_pending;            // a cancellation is still to be raised
    bool deferred; // what is pending was not raised in a wait for a Mutex that is taken again, see callers.h
};

struct owner_functions {
    // Whether something is to be raised in it at its next wait.
    bool (*interrupted)(const struct wait_owner *owner);

    // Raises that: a cancellation first, then the outermost deadline that has passed. Returns when there is nothing.
    void (*raise_pending)(struct wait_owner *owner);

    // Raises a cancellation that is pending, unless a shield holds it up.
    void (*raise_cancellation)(struct wait_owner *owner);

    // It is about to park: arms the timers of its deadlines that have none yet. May raise NoMemoryError.
    void (*arm_deadlines)(struct wait_owner *owner);

    // The loop is about to belong to the calling thread. May raise; nothing has changed by then.
    void (*adopt)(struct loop *loop);

    // This process is a child of fork: none of the owners runs here, except for the one that forked.
    void (*abandon)(struct loop *loop);
};

#endif
