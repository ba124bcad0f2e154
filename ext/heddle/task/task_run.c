#include "task/task_run.h"

#include "loop/loop.h"
#include "protect.h"
#include "scope/deadline_scope.h"
#include "scope/other_scheduler_scope.h"
#include "shims.h"
#include "task/current.h"
#include "task/external.h"
#include "task/join.h"
#include "task/run.h"
#include "task/task_loop.h"
#include "task/task_trace.h"

static ID id_cause, id_call, id_start;

// ---- running

static VALUE call_proc(VALUE block)
{
    return rb_proc_call_with_block(block, 0, NULL, Qnil);
}

static VALUE call_block(VALUE argument)
{
    struct task *task = (struct task *)argument;
    if (task->owner.loop && task->owner.loop->trace) task_trace_start(task);
    if (task->owner.loop) fiber_index_add(&task->owner.loop->running, &task->owner.fiber); // or the task fails
    struct scope *inherited = task->scopes.innermost;
    if (inherited && !task->owner.loop) other_scheduler_watch(inherited);
    return inherited && !is_external(task) ? scope_call(inherited, call_proc, task->block) : call_proc(task->block);
}

// A kill that came while the block ran, and continues to the end of the fiber.
struct death {
    struct task *task;
    int state;
};

static VALUE die(VALUE argument)
{
    rb_jump_tag(((struct death *)argument)->state);
}

static VALUE start(VALUE task)
{
    return rb_funcall(task, id_start, 0);
}

// Gives a pool back the place of its killed task, which would otherwise be lost.
static VALUE hand_on(VALUE argument)
{
    struct task *task = ((struct death *)argument)->task;
    if (task->owner.loop) task_loop_between_tasks(task->owner.loop);
    int state = 0;
    VALUE next = task_successor(task, &state);
    while (!NIL_P(next) && task_of(next)->status != TASK_QUEUED)
        next = task_successor(task_of(next), &state); // was cancelled meanwhile
    if (!NIL_P(next)) protect_next(start, next, &state);
    if (state) rb_jump_tag(state);
    return Qnil;
}

// Libraries turn every exception of a wait into one of their own, whose cause it then is.
static bool comes_of_a_cancellation(VALUE error)
{
    for (; RTEST(rb_obj_is_kind_of(error, rb_eException)); error = rb_attr_get(error, id_cause)) {
        if (is_cancellation(error)) return true;
    }
    return false;
}

// One rb_protect, although a rescue inside an ensure would read better: this function's frames lie below everything
// that a task does, and each page of a waiting fiber's stack counts.
void task_run(struct task *task)
{
    VALUE self = task->owner.self;
    int state = 0;
    task->owner.fiber = rb_fiber_current();
    task_become(task, TASK_RUNNING);
    VALUE result = rb_protect(call_block, (VALUE)task, &state);
    if (!state) {
        task_end(task, task->status == TASK_CANCELLING && is_external(task) ? TASK_CANCELLED : TASK_COMPLETED, result);
    } else if (is_exception(rb_errinfo())) {
        VALUE error = rb_errinfo();
        rb_set_errinfo(Qnil);
        if (is_external(task) || task->pushed) {
            task_failed_outside(task, error);
            return;
        }
        bool cancelled = task->status == TASK_CANCELLING && !is_fatal(error) && comes_of_a_cancellation(error);
        task_end(task, cancelled ? TASK_CANCELLED : TASK_FAILED, error);
    } else { // a kill or a throw ends the fiber
        struct death death = {.task = task, .state = state};
        task_end(task, TASK_CANCELLED, Qnil);
        rb_ensure(die, (VALUE)&death, hand_on, (VALUE)&death);
    }
    RB_GC_GUARD(self);
}

struct succession {
    const struct task *task;
    VALUE successor;
    bool settled;
};

static bool is_settled(VALUE argument)
{
    return ((const struct succession *)argument)->settled;
}

static VALUE settle(VALUE argument)
{
    struct succession *succession = (struct succession *)argument;
    const struct task *task = succession->task;
    succession->successor = rb_funcall(task->on_end, id_call, 1, task->owner.self);
    succession->settled = true;
    return Qnil;
}

VALUE task_successor(struct task *task, int *state)
{
    struct succession succession = {.task = task, .successor = Qnil, .settled = NIL_P(task->on_end)};
    protect_until(is_settled, settle, (VALUE)&succession, state);
    return succession.successor;
}

void task_raise_error(VALUE error)
{
    deadline_joined(error);
    rb_exc_raise(error);
}

void task_raise_cancelled(const struct task *task, VALUE message)
{
    raise_with_cause(rb_exc_new_str(heddle_eTaskCancelled, message), task_error(task));
}

void Init_heddle_task_run(void)
{
    id_cause = rb_intern("cause"); // without an @, which hides the variable
    id_call = rb_intern("call");
    id_start = rb_intern("start");
}
