#include "task/external.h"

#include "loop/start.h"
#include "os/fork.h"
#include "task/worker_fiber.h"
#include "task/run.h"
#include "task/task_loop.h"
#include "task/task_run.h"
#include "task/task_trace.h"

bool external_is_transient(VALUE external)
{
    return RTEST(rb_attr_get(external, rb_intern("@transient")));
}

struct start {
    struct loop *loop;
    struct task *task;
};

static VALUE run_fiber(VALUE argument)
{
    const struct start *start = (const struct start *)argument;
    struct wait_owner *owner = &start->task->owner;
    loop_start(start->loop, owner, owner->fiber, Qnil, order_beside_external(start->loop));
    return Qnil;
}

// Ruby may refuse to switch to the fiber: no memory for a stack, or a fiber that has started before. An external task
// that has started waits somewhere, or has ended.
static VALUE forget_unstarted(VALUE argument)
{
    struct task *task = ((const struct start *)argument)->task;
    if (!task->owner.wait) task_fiber_ended(task);
    return Qnil;
}

void external_start(struct loop *loop, VALUE fiber, VALUE external, const struct external_bonds *bonds)
{
    VALUE object = task_create(Qnil, Qnil, loop->self, loop, bonds->inherits);
    struct task *task = task_of(object);
    task->owner.external = external;
    task->owner.fiber = fiber;
    task->owner.ends_with_fiber = true;
    fiber_index_add(&loop->running, &task->owner.fiber);
    task_enlist(task, bonds->run);
    task_become(task, TASK_RUNNING);
    loop->statistics.spawned++;
    if (loop->trace) task_trace_start(task);
    struct start start = {.loop = loop, .task = task};
    rb_ensure(run_fiber, (VALUE)&start, forget_unstarted, (VALUE)&start);
    RB_GC_GUARD(object);
}

void external_run(struct loop *loop, VALUE block, VALUE external, const struct external_bonds *bonds)
{
    VALUE object = task_create(block, Qnil, loop->self, loop, bonds->inherits);
    struct task *task = task_of(object);
    task->owner.external = external;
    task_enlist(task, bonds->run);
    worker_fiber_start(loop, task, false, Qnil);
    RB_GC_GUARD(object);
}

void external_release(struct task *task)
{
    task->scopes.filters = 0;
    for (struct scope *scope = task->scopes.innermost, *outer; scope; scope = outer) {
        outer = scope->outer;
        if (scope->inherited) scope_close(scope);
    }
    task_leave_run(task);
}

bool external_put_off(struct task *task, VALUE exception)
{
    if (!task_runs(task) || !scope_shielded(task->owner.chain)) return false;
    task->owner.interruption = exception;
    task->owner.cancel_pending = true;
    return true;
}
