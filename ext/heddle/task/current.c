#include "task/current.h"

static ID id_task;

// Under another scheduler: the task that the current fiber runs, or NULL.
static struct task *other_scheduler_current_task(void)
{
    VALUE object = rb_thread_local_aref(rb_thread_current(), id_task);
    if (NIL_P(object)) return NULL;
    struct task *task = task_of(object);
    return task_runs(task) ? task : NULL;
}

struct task *task_current(void)
{
    struct loop *loop = context_of_thread().loop;
    if (!loop) return other_scheduler_current_task();
    return loop->owner->self ? task_of_owner(loop->owner) : NULL;
}

void Init_heddle_current(void)
{
    id_task = rb_intern("__heddle_task__");
}
