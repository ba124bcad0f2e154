// A loop with the tasks that run on it: what a Heddle::Scheduler is.
#ifndef HEDDLE_TASK_TASK_LOOP_H
#define HEDDLE_TASK_TASK_LOOP_H

#include "loop/loop.h"
#include "task/task.h"

struct task_loop {
    struct loop loop;         // first: the loop's room knows nothing of the rest
    struct task root;         // stands for what runs outside of any task: the caller of the outermost run
    struct task system;       // stands for fibers between two tasks, and for the inbox: no interrupt is theirs
    struct task *head, *tail; // all that have not ended, in order of their start
    size_t count;
    VALUE run;         // the Heddle::Run that set this scheduler: what Fiber.schedule starts belongs to it; or nil
    VALUE inbox;       // starts what other threads post, see carrier.h; or 0
    VALUE posted;      // Array of tasks for it, or nil
    VALUE fatal;       // SystemExit or a signal that ended a task outside of any run: raised from close; or nil
    VALUE drain_fiber; // waits for the last task to end, or 0
    bool detaching;    // the next close is to do nothing
    bool visiting;     // on its thread for some calls only: in between Ruby has no scheduler to tell of wake-ups
};

// A new object of Heddle::Scheduler or a class that inherits from it.
VALUE task_loop_allocate(VALUE klass);

// The loop of a Heddle::Scheduler; NULL for nil and for a foreign scheduler. Does not enter it.
struct loop *loop_of(VALUE scheduler);

// As loop_of, but NULL for a subclass of Heddle::Scheduler, too, which may have overridden hooks.
struct loop *loop_of_plain(VALUE scheduler);

// For hooks: the loop of `self`, which belongs to the calling thread from now on. Raises as loop_enter does.
struct loop *loop_entered(VALUE self);

// What belongs to that loop.
static inline struct task_loop *task_loop_of(struct loop *loop)
{
    return (struct task_loop *)loop; // its first member
}

// The same for a Heddle::Scheduler.
static inline struct task_loop *tasks_of(VALUE scheduler)
{
    return task_loop_of(loop_of(scheduler));
}

// The stand-in for what runs between two tasks is the owner of the running fiber from now on.
static inline void task_loop_between_tasks(struct loop *loop)
{
    loop->owner = loop->system;
}

// ---- the tasks that have not ended

// An Array of them, in the order of their start.
VALUE task_loop_tasks(VALUE scheduler);

// A new task for `loop` (NULL under a foreign scheduler). `inherits`: the deadline in force here binds it. Nothing knows of it
// before task_list: an exception may come in between.
VALUE task_create(VALUE block, VALUE name, VALUE scheduler, struct loop *loop, bool inherits);

// From now on its loop and the run (or nil) wait for its end.
void task_list(struct task *task, VALUE run);

// Takes it off its loop's list: it has ended.
void task_unlist(struct task *task);

// It never started: as if it had not been created.
void task_forget(struct task *task);

// ---- work from other threads

// Any thread. The inbox starts the task when the loop runs next. There must be one.
void task_loop_post(struct loop *loop, VALUE task);

// Called by the inbox: the next posted task, when there is one.
VALUE task_loop_next_posted(struct loop *loop);

#endif
