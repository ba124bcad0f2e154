// A loop with the tasks that run on it: the struct of a Heddle::Scheduler.
#ifndef HEDDLE_TASK_TASK_LOOP_H
#define HEDDLE_TASK_TASK_LOOP_H

#include "loop/context.h"
#include "task/task.h"

struct task_loop {
    struct loop loop;       // first: the layer loop/ knows nothing of the rest
    struct task root;       // stands for code outside of any task: the caller of the outermost run
    struct task system;     // stands for fibers between two tasks, and for the inbox: they receive no interrupt
    struct task_list tasks; // all that have not ended
    size_t externals;       // of them, tasks that stand for those of another library
    VALUE run;              // the Heddle::Run that set this scheduler, to which tasks of Fiber.schedule belong; or nil
    VALUE inbox;            // the fiber that starts tasks that other threads post, see worker_fiber.h; or 0
    VALUE posted;           // Array of tasks for the inbox, or nil
    VALUE fatal;            // SystemExit or a signal that ended a task outside of any run: raised from close; or nil
    VALUE drain_fiber;      // the fiber that waits for the last task to end, or 0
    bool killed;            // Thread#kill ended the run that set this scheduler
    bool starts_unbound;    // the next external task inherits nothing
};

// Allocates an object of Heddle::Scheduler or a subclass.
VALUE task_loop_allocate(VALUE klass);

// The tasks of that loop.
static inline struct task_loop *task_loop_of(struct loop *loop)
{
    return (struct task_loop *)loop; // its first member
}

// Like task_loop_of, for a Heddle::Scheduler.
static inline struct task_loop *tasks_of(VALUE scheduler)
{
    return task_loop_of(loop_of(scheduler));
}

// Makes the stand-in for fibers between two tasks the owner of the running fiber.
static inline void task_loop_between_tasks(struct loop *loop)
{
    loop->owner = loop->system;
}

// ---- the tasks that have not ended

// Makes a task for `loop` (NULL under another scheduler). `inherits`: the deadline in force here binds the task.
// Before task_enlist nothing else refers to the task, so that an exception may come in between.
VALUE task_create(VALUE block, VALUE name, VALUE scheduler, struct loop *loop, bool inherits);

// A call has returned before its deadline: its tasks that go on are no longer bound by that.
void task_loop_call_returned(struct loop *loop, uint64_t call);

// Gives a task that has not started the scheduler that will run it.
void task_settle(struct task *task, VALUE scheduler);

// ---- work from other threads

// Any thread. The inbox, which must exist, starts the task when the loop runs next.
void task_loop_post(struct loop *loop, VALUE task);

// Called by the inbox: waits for a posted task, and returns the first. The list keeps that task, which no exception in
// the inbox may lose, until task_loop_take_posted removes it, or replaces it by a successor that is not nil.
VALUE task_loop_first_posted(struct loop *loop);
void task_loop_take_posted(struct loop *loop, VALUE successor);

#endif
