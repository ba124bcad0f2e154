#include "task/other_scheduler.h"

#include "task/task_run.h"

static ID id_task, id_schedule;

static VALUE run_in_fiber(RB_BLOCK_CALL_FUNC_ARGLIST(unused, task_object))
{
    (void)unused, (void)argc, (void)argv, (void)blockarg;
    while (!NIL_P(task_object)) {
        struct task *task = task_of(task_object);
        rb_thread_local_aset(rb_thread_current(), id_task, task_object); // of this fiber
        if (task->status == TASK_QUEUED) task_run(task);
        int state = 0;
        task_object = task_successor(task, &state);
        if (state) rb_jump_tag(state);
    }
    return Qnil;
}

static VALUE schedule(VALUE task_object)
{
    return rb_block_call(heddle_cFiber, id_schedule, 0, NULL, run_in_fiber, task_object);
}

void other_scheduler_start(struct task *task)
{
    int state = 0;
    rb_protect(schedule, task->owner.self, &state);
    if (!state) return;
    if (task->status == TASK_QUEUED) task_end(task, TASK_WITHDRAWN, Qnil); // nobody must wait for it
    rb_jump_tag(state);
}

void Init_heddle_other_scheduler(void)
{
    id_task = rb_intern("__heddle_task__");
    id_schedule = rb_intern("schedule");
}
