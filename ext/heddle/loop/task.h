// A task: one logical thread of control, on one fiber (and those that it resumes). Deadlines, cancellation and
// statistics are its, not the fiber's.
#ifndef HEDDLE_LOOP_TASK_H
#define HEDDLE_LOOP_TASK_H

#include "loop/timer.h"

struct loop;
struct loop_wait;

enum task_status { TASK_QUEUED, TASK_RUNNING, TASK_COMPLETED, TASK_FAILED, TASK_CANCELLED };

// A stretch of a task's code that must be over at some instant. Lives in an object of its own, which the task marks: a
// fiber that is abandoned inside the stretch takes its stack with it, but the timer still points here.
struct scope {
    struct timer timer;
    VALUE self;
    struct task *task;   // NULL outside of scope_enter and scope_leave
    struct scope *outer; // of the same task
    VALUE exception;     // class or instance
    VALUE message;       // or nil
    bool expired;
    bool raised;
};

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
    struct scope *scopes;             // innermost first
    enum task_status status;
    bool listed;         // in the loop's list
    bool cancel_asked;   // Task#cancel was called
    bool cancel_pending; // and its exception is still to be raised
    bool started;        // its block was called
    bool posted;         // another thread's, on its way to the porter
    bool claimed;        // somebody asked for its value
};

// Whether something is to be raised in the task at its next wait.
bool task_pending(const struct task *task);

// Raises it: cancellation first, then the outermost expired scope. Returns when there is nothing.
void task_raise_pending(struct task *task);

void task_mark(struct task *task);

// Opens a scope in the running task; its exception is raised once, in the task's innermost wait. Raises NoMemoryError
// before anything has changed.
void scope_enter(struct scope *scope, struct loop *loop, int64_t span);

// Harmless for a scope that is not open.
void scope_leave(struct scope *scope);
void task_leave_scopes(struct task *task);

#endif
