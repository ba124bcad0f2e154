// The owner of waits and deadlines: a task, or the code outside of any task. The layers below tasks know a task by this
// record, the first member of its own.
#ifndef HEDDLE_CANCEL_OWNER_H
#define HEDDLE_CANCEL_OWNER_H

#include "heddle.h"

struct loop;
struct loop_wait;
struct scope_chain;

struct wait_owner {
    VALUE self;                 // the object that keeps this record alive; 0 for a loop's own two owners
    VALUE fiber;                // the fiber that the owner runs on, or nil
    VALUE external;             // another library's task, which this one stands for, see task/external.h; or nil
    VALUE interruption;         // the exception to raise instead of a cancellation, or nil
    struct loop *loop;          // NULL under another scheduler
    struct loop_wait *wait;     // its innermost wait that is parked now, or NULL
    uint64_t number;            // of all owners of this process and its parents; tasks are named by it
    uint64_t parent;            // the number of the task that made this one; or 0
    struct task_record *record; // while the process keeps records, see loop/records.h; or NULL
    struct scope_chain *chain;  // the scopes that bind it: its own, or the thread's for code outside of any task
    uint8_t grace_used;         // operations that went through since something became pending, see loop_check_pending
    bool cancel_pending;        // a cancellation is still to be raised
    bool held;                  // nothing is raised in it: it runs code that must not be interrupted
    bool killed;                // by Fiber#kill: no `rescue` is to stop it
    bool cleans_up;             // it was cancelled or killed: a hang-up is not to end its clean-up
    bool ends_with_fiber;       // nothing of ours runs at the end of its fiber: the loop reports fiber_ended
    bool listed;                // a task that is in the list of its loop: it has not ended
    bool deferred;              // raising was put off by a wait that reacquires a Mutex, see callers.h
};

#endif
