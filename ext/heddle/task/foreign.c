#include "task/foreign.h"

#include "shims.h"
#include "task/bindings.h"
#include "task/current.h"
#include "task/task_loop.h"
#include "task/task_run.h"

static ID id_task, id_schedule, id_fiber_interrupt, id_raise, id_scopes;

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

static VALUE schedule(VALUE task_object)
{
    return rb_block_call(heddle_cFiber, id_schedule, 0, NULL, run_in_fiber, task_object);
}

void foreign_start(struct task *task)
{
    int state = 0;
    rb_protect(schedule, task->owner.self, &state);
    if (!state) return;
    if (task->status == TASK_QUEUED) task_end(task, TASK_CANCELLED, Qnil); // nobody must wait for it
    rb_jump_tag(state);
}

struct task *foreign_current_task(void)
{
    VALUE object = rb_thread_local_aref(rb_thread_current(), id_task);
    if (NIL_P(object)) return NULL;
    struct task *task = task_of(object);
    return task->status == TASK_RUNNING ? task : NULL;
}

static void interrupt(VALUE scheduler, VALUE fiber, VALUE error)
{
    if (rb_respond_to(scheduler, id_fiber_interrupt)) {
        rb_funcall(scheduler, id_fiber_interrupt, 2, fiber, error);
    } else if (rb_respond_to(scheduler, id_raise)) {
        rb_funcall(scheduler, id_raise, 2, fiber, error);
    } else {
        rb_fiber_raise(fiber, 1, &error);
        RB_GC_GUARD(fiber); // rb_fiber_raise reads the fiber through a plain pointer after the fiber may have ended
    }
}

void foreign_cancel(struct task *task)
{
    VALUE error = task->interruption;
    task->interruption = Qnil;
    if (NIL_P(error)) {
        VALUE message = rb_sprintf("%" PRIsVALUE " was cancelled", task->owner.self);
        error = rb_exc_new_str(heddle_eCancellation, message);
    }
    task->owner.cancel_pending = false;
    if (task == foreign_current_task()) rb_exc_raise(error);
    interrupt(task->scheduler, task->owner.fiber, error);
}

// ---- deadlines

struct scope_chain *foreign_chain(void)
{
    struct task *task = foreign_current_task();
    if (task) return task->chain;
    VALUE thread = rb_thread_current(), object = rb_thread_local_aref(thread, id_scopes); // of this fiber
    if (!NIL_P(object)) return RTYPEDDATA_DATA(object);
    struct scope_chain *chain = scope_chain_new(&foreign_scope_host, &object);
    rb_thread_local_aset(thread, id_scopes, object);
    return chain;
}

static VALUE interrupt_for(VALUE argument)
{
    struct scope *scope = (struct scope *)argument;
    interrupt(rb_fiber_scheduler_current(), scope->fiber, scope_error(scope));
    return Qnil;
}

// If the scheduler refuses (the fiber has resumed another fiber, which waits), the watcher tries again.
static void fail_wait(struct scope *scope)
{
    int state = 0;
    scope->failures++;
    rb_protect(interrupt_for, (VALUE)scope, &state);
    if (!state) return;
    scope->failures--;
    if (!RTEST(rb_obj_is_kind_of(rb_errinfo(), rb_eStandardError))) rb_jump_tag(state);
    rb_set_errinfo(Qnil);
}

static VALUE watch(RB_BLOCK_CALL_FUNC_ARGLIST(unused, object))
{
    (void)unused, (void)argc, (void)argv, (void)blockarg;
    struct scope *scope = scope_of(object);
    VALUE scheduler = rb_fiber_scheduler_current();
    uint64_t retry = 0; // the fiber runs before the first check
    while (scope->chain) {
        int64_t left = scope->at - deadline_now();
        if (left > 0) {
            rb_fiber_scheduler_block(scheduler, object, DBL2NUM((double)left / 1e9));
            continue;
        }
        rb_fiber_scheduler_kernel_sleep(scheduler, DBL2NUM((double)retry / 1e9));
        retry = scope_next_retry(retry);
        if (!scope->chain) break;
        scope_expire(scope);
        if (scope_due(scope->chain, 0) == scope) fail_wait(scope);
    }
    RB_GC_GUARD(object);
    return Qnil;
}

static VALUE start_watcher(VALUE object)
{
    return rb_block_call(heddle_cFiber, id_schedule, 0, NULL, watch, object);
}

void foreign_watch(struct scope *scope)
{
    int state = 0;
    scope->fiber = rb_fiber_current();
    scope->watcher = rb_protect(start_watcher, scope->self, &state);
    if (!state) return;
    scope->watcher = Qnil;
    scope_close(scope);
    rb_jump_tag(state);
}

static void opened(struct scope *scope)
{
    if (scope->at != DEADLINE_NEVER && !scope->inherited) foreign_watch(scope);
}

// Wakes the scope's watcher, which then ends.
static void closed(struct scope *scope, struct scope_chain *chain, bool uncovers)
{
    (void)chain, (void)uncovers;
    if (NIL_P(scope->watcher) || !RTEST(rb_fiber_alive_p(scope->watcher))) return;
    VALUE scheduler = rb_fiber_scheduler_get();
    if (!NIL_P(scheduler)) rb_fiber_scheduler_unblock(scheduler, scope->self, scope->watcher);
}

// Each fiber has a chain of its own.
static bool is_home(struct scope_chain *chain, VALUE fiber)
{
    (void)chain, (void)fiber;
    return true;
}

static VALUE running_fiber(const struct scope_chain *chain)
{
    (void)chain;
    return rb_fiber_current();
}

const struct scope_host foreign_scope_host = {
    .opened = opened,
    .closed = closed,
    .is_home = is_home,
    .running_fiber = running_fiber,
};

void Init_heddle_foreign(void)
{
    id_task = rb_intern("__heddle_task__");
    id_schedule = rb_intern("schedule");
    id_fiber_interrupt = rb_intern("fiber_interrupt");
    id_raise = rb_intern("raise");
    id_scopes = rb_intern("__heddle_scopes__");
}
