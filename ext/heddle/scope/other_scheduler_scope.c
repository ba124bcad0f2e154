#include "scope/other_scheduler_scope.h"

#include "shims.h"

static ID id_task, id_schedule, id_fiber_interrupt, id_raise, id_scopes;

void other_scheduler_interrupt(VALUE scheduler, VALUE fiber, VALUE error)
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

struct scope_chain *other_scheduler_chain(void)
{
    VALUE thread = rb_thread_current(), task = rb_thread_local_aref(thread, id_task);   // of this fiber
    if (!NIL_P(task)) return ((const struct wait_owner *)RTYPEDDATA_DATA(task))->chain; // a task's first member
    VALUE object = rb_thread_local_aref(thread, id_scopes);
    if (!NIL_P(object)) return RTYPEDDATA_DATA(object);
    struct scope_chain *chain = scope_chain_new(&object);
    rb_thread_local_aset(thread, id_scopes, object);
    return chain;
}

static VALUE interrupt_for(VALUE argument)
{
    struct scope *scope = (struct scope *)argument;
    other_scheduler_interrupt(rb_fiber_scheduler_current(), scope->fiber, scope_error(scope));
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

static VALUE other_scheduler_scope_watch(RB_BLOCK_CALL_FUNC_ARGLIST(unused, object))
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
    return rb_block_call(heddle_cFiber, id_schedule, 0, NULL, other_scheduler_scope_watch, object);
}

void other_scheduler_watch(struct scope *scope)
{
    int state = 0;
    scope->fiber = rb_fiber_current();
    scope->watcher = rb_protect(start_watcher, scope->self, &state);
    if (!state) return;
    scope->watcher = Qnil;
    if (scope->chain) scope_unlink(scope);
    rb_jump_tag(state);
}

void other_scheduler_scope_opened(struct scope *scope)
{
    if (scope->at != DEADLINE_NEVER && !scope->inherited) other_scheduler_watch(scope);
}

void other_scheduler_scope_closed(const struct scope *scope)
{
    if (NIL_P(scope->watcher) || !RTEST(rb_fiber_alive_p(scope->watcher))) return;
    VALUE scheduler = rb_fiber_scheduler_get();
    if (!NIL_P(scheduler)) rb_fiber_scheduler_unblock(scheduler, scope->self, scope->watcher);
}

void Init_heddle_other_scheduler_scope(void)
{
    id_task = rb_intern("__heddle_task__");
    id_schedule = rb_intern("schedule");
    id_fiber_interrupt = rb_intern("fiber_interrupt");
    id_raise = rb_intern("raise");
    id_scopes = rb_intern("__heddle_scopes__");
}
