// A task: one logical thread of control, on one fiber (and those that it resumes). Deadlines, cancellation and
// statistics are its, not the fiber's.
#ifndef HEDDLE_TASK_TASK_H
#define HEDDLE_TASK_TASK_H

#include "scope/scope.h"

struct loop;
struct loop_wait;

enum task_status { TASK_QUEUED, TASK_RUNNING, TASK_COMPLETED, TASK_FAILED, TASK_CANCELLED };

struct task {
    VALUE self; // the Heddle::Task; 0 for the loop's own root
    VALUE block;
    VALUE name;
    VALUE result;             // value or exception
    VALUE fiber;              // on which it runs, or nil
    VALUE waiters;            // those that wait for its end, see join.h
    VALUE scheduler;          // where it runs
    VALUE storage;            // for a reused fiber: a copy of the spawner's Fiber#storage, or nil
    VALUE run;                // the Heddle::Run it belongs to, or nil
    VALUE on_end;             // called with the task once it has ended; may return a queued one, to go on with; or nil
    struct loop *loop;        // NULL under a foreign scheduler
    struct task *prev, *next; // in the loop
    struct task *run_prev, *run_next; // in the run
    struct loop_wait *wait;           // the innermost that is parked now, or NULL
    struct scope_chain scopes;
    struct scope_chain *chain; // the scopes above; of the loop's root: those of its thread
    enum task_status status;
    uint8_t admitted;    // operations that have gone through since something is pending, see loop_admit
    bool listed;         // in the loop's list
    bool cancel_asked;   // Task#cancel was called
    bool cancel_pending; // and its exception is still to be raised
    bool deferred;       // what is pending was not raised in a wait for a Mutex that is taken again, see callers.h
    bool held;           // nothing is raised in it: it is inside of what must come to its end
    bool killed;         // by Fiber#kill: no `rescue` is to stop it
    bool started;        // its block was called
    bool posted;         // another thread's, on its way to the porter
    bool claimed;        // somebody asked for its value
};

// Whether something is to be raised in the task at its next wait.
bool task_interrupted(const struct task *task);

static inline bool task_pending(const struct task *task)
{
    return (task->cancel_pending || task->chain->innermost) && task_interrupted(task);
}

// Raises it: cancellation first, then the outermost scope that is over. Returns when there is nothing.
void task_raise_pending(struct task *task);

// Raises a cancellation that is pending, unless a shield holds it up.
void task_raise_cancellation(struct task *task);

// Before it parks: raises what is pending, and arms the timers of scopes that have none yet.
void task_prepare_wait(struct task *task);

// Arms those only.
void task_arm_deadlines(struct task *task);

// Once the Mutex is taken again: raises what was not raised meanwhile.
void task_raise_deferred(struct task *task);

void task_mark(struct task *task);

#endif
