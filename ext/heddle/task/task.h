// The record of a task: one logical thread of control, on one fiber (and those that it resumes). Deadlines, cancellation
// and statistics are its, not the fiber's.
#ifndef HEDDLE_TASK_TASK_H
#define HEDDLE_TASK_TASK_H

#include "loop/owner.h"
#include "scope/scope.h"

enum task_status { TASK_QUEUED, TASK_RUNNING, TASK_COMPLETED, TASK_FAILED, TASK_CANCELLED };

struct task {
    struct wait_owner owner; // first: a loop knows the owner alone
    VALUE block;
    VALUE name;
    VALUE result;             // value or exception
    VALUE waiters;            // those that wait for its end, see join.h
    VALUE scheduler;          // where it runs
    VALUE storage;            // for a reused fiber: a copy of the spawner's Fiber#storage, or nil
    VALUE run;                // the Heddle::Run it belongs to, or nil
    VALUE on_end;             // called with the task once it has ended; may return a queued one, to go on with; or nil
    struct task *prev, *next; // in the loop
    struct task *run_prev, *run_next; // in the run
    struct scope_chain scopes;
    struct scope_chain *chain; // the scopes above; of what runs outside of any task: those of its thread
    enum task_status status;
    bool listed;       // in the loop's list
    bool cancel_asked; // Task#cancel was called
    bool held;         // nothing is raised in it: it is inside of what must come to its end
    bool killed;       // by Fiber#kill: no `rescue` is to stop it
    bool started;      // its block was called
    bool posted;       // another thread's, on its way to the inbox
    bool claimed;      // somebody asked for its value
};

// The record of a Heddle::Task. Raises TypeError for another object.
struct task *task_of(VALUE object);

// That of an owner of a loop.
static inline struct task *task_of_owner(struct wait_owner *owner)
{
    return (struct task *)owner; // its first member
}

// A queued one in an object of its own, with scopes in the care of `host`. `loop` is NULL under a foreign scheduler.
// Raises NoMemoryError.
struct task *task_new(struct loop *loop, VALUE scheduler, const struct scope_host *host);

// The same for a cleared record that is no object.
void task_init(struct task *task, struct loop *loop, VALUE scheduler, const struct scope_host *host);

// The scopes of that chain bind it from now on.
void task_bind(struct task *task, struct scope_chain *chain);

void task_mark(struct task *task);

#endif
