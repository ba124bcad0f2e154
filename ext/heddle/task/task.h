// The record of a task: one logical thread of control, on one fiber (and the fibers that it resumes). Deadlines,
// cancellation and statistics belong to the task, not to the fiber.
#ifndef HEDDLE_TASK_TASK_H
#define HEDDLE_TASK_TASK_H

#include "scope/scope.h"

// In order: before, during and after the run of its block. task.c says which follows which.
enum task_status {
    TASK_QUEUED,
    TASK_RUNNING,
    TASK_CANCELLING, // runs, and Task#cancel was called
    TASK_COMPLETED,
    TASK_FAILED,
    TASK_CANCELLED,
    TASK_WITHDRAWN // cancelled before its block was called
};

// Tasks that have not ended, in order of their start.
struct task_list {
    struct task *head, *tail;
    size_t count;
    enum { LIST_OF_LOOP, LIST_OF_RUN, TASK_LISTS } kind;
};

struct task {
    struct wait_owner owner; // first: a loop knows only the owner
    VALUE block;
    VALUE name;
    VALUE result;    // value or exception
    VALUE waiters;   // waiters for its end, see join.h
    VALUE scheduler; // the scheduler that runs it
    VALUE storage;   // for a reused fiber: a copy of the spawner's Fiber#storage, or nil
    VALUE run;       // the Heddle::Run it belongs to, or nil
    VALUE on_end;    // called with the task after its end; may return a queued task to run next; or nil
    struct {
        struct task *prev, *next;
    } in[TASK_LISTS]; // its places in the lists of its loop and of its run
    struct scope_chain scopes;
    enum task_status status;
    bool posted;  // by another thread, to the inbox
    bool pushed;  // to stand behind the ready fibers, see worker_fiber_queue
    bool claimed; // code asked for its value
};

// The record of a Heddle::Task. Raises TypeError for another object.
struct task *task_of(VALUE object);

// The task of a loop's owner.
static inline struct task *task_of_owner(struct wait_owner *owner)
{
    return (struct task *)owner; // its first member
}

static inline bool task_runs(const struct task *task)
{
    return task->status == TASK_RUNNING || task->status == TASK_CANCELLING;
}

static inline bool task_ended(const struct task *task)
{
    return task->status > TASK_CANCELLING;
}

// Returns whether its block was called, or is about to be.
static inline bool task_started(const struct task *task)
{
    return task->status != TASK_QUEUED && task->status != TASK_WITHDRAWN;
}

// The only change of a task's status.
void task_become(struct task *task, enum task_status status);

// Returns whether the task stands for one of another library, see external.h.
static inline bool is_external(const struct task *task)
{
    return !NIL_P(task->owner.external);
}

// A queued task in an object of its own. `loop` is NULL under another scheduler. Raises NoMemoryError.
struct task *task_new(struct loop *loop, VALUE scheduler);

// Like task_new, for a cleared record without an object.
void task_init(struct task *task, struct loop *loop, VALUE scheduler);

void task_mark(struct task *task);

// Gives the task a record, see loop/records.h.
void task_record(struct task *task);

void task_list_add(struct task_list *list, struct task *task);
void task_list_remove(struct task_list *list, struct task *task);
void task_list_mark(const struct task_list *list);

// An Array of the tasks.
VALUE task_list_objects(const struct task_list *list);

#endif
