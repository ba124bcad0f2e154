#include "loop/foreign.h"

#include "loop/task_class.h"
#include "loop/task_run.h"
#include "shims.h"

static ID id_task, id_schedule, id_fiber_interrupt, id_raise;

static VALUE run_in_fiber(RB_BLOCK_CALL_FUNC_ARGLIST(unused, task_object))
{
    (void)unused, (void)argc, (void)argv, (void)blockarg;
    while (!NIL_P(task_object)) {
        struct task *task = task_of(task_object);
        rb_thread_local_aset(rb_thread_current(), id_task, task_object); // of this fiber
        if (task->status == TASK_QUEUED) task_run(task);
        task_object = task_successor(task);
    }
    return Qnil;
}

void foreign_start(struct task *task)
{
    rb_block_call(heddle_cFiber, id_schedule, 0, NULL, run_in_fiber, task->self);
}

struct task *foreign_current_task(void)
{
    VALUE object = rb_thread_local_aref(rb_thread_current(), id_task);
    if (NIL_P(object)) return NULL;
    struct task *task = task_of(object);
    return task->status == TASK_RUNNING ? task : NULL;
}

void foreign_cancel(struct task *task)
{
    VALUE message = rb_sprintf("%" PRIsVALUE " was cancelled", task->self);
    VALUE error = rb_exc_new_str(heddle_eCancellation, message);
    task->cancel_pending = false;
    if (task == foreign_current_task()) rb_exc_raise(error);
    if (rb_respond_to(task->scheduler, id_fiber_interrupt)) {
        rb_funcall(task->scheduler, id_fiber_interrupt, 2, task->fiber, error);
    } else if (rb_respond_to(task->scheduler, id_raise)) {
        rb_funcall(task->scheduler, id_raise, 2, task->fiber, error);
    } else {
        rb_fiber_raise(task->fiber, 1, &error);
    }
}

void Init_heddle_foreign(void)
{
    id_task = rb_intern("__heddle_task__");
    id_schedule = rb_intern("schedule");
    id_fiber_interrupt = rb_intern("fiber_interrupt");
    id_raise = rb_intern("raise");
}
