// Heddle::Task, the Ruby class that binds a task, and what starts and ends one.
#ifndef HEDDLE_LOOP_TASK_CLASS_H
#define HEDDLE_LOOP_TASK_CLASS_H

#include "loop/task.h"

struct task *task_of(VALUE object);

// A new task of the running task's run, listed in `loop` (NULL under a foreign scheduler).
VALUE task_create(VALUE block, VALUE name, VALUE scheduler, struct loop *loop, VALUE run);

// Runs its block on the current fiber, to its end. Raises only what no rescue stops (Thread#kill).
void task_run(struct task *task);

// After task_run: the queued task that its on_end wants to follow on the same fiber, or nil.
VALUE task_successor(struct task *task);

// It has ended: tells those that wait, its run, and the loop; reports an error that nobody asked for.
void task_end(struct task *task, enum task_status status, VALUE result);

// SystemExit, a signal, NoMemoryError: what ends everything, not one task.
bool is_fatal(VALUE error);

// It never started: as if it had not been created.
void task_forget(struct task *task);

// It does not end: nobody waits for it any more.
void task_give_up(struct task *task);

// Starts `block` as a task on the thread's scheduler, ours or a foreign one. `run`: the Heddle::Run it belongs to, nil, or
// Qundef for that of the running task.
VALUE task_spawn(VALUE block, VALUE name, VALUE run);

// The task whose code runs now, or NULL.
struct task *task_current(void);

void Init_heddle_task(void);

#endif
