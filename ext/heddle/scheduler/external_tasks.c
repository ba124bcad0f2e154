// Private methods of the scheduler classes that Scheduler.equip has prepared: the methods of Async's scheduler that
// switch fibers, on a loop of Heddle's. lib/heddle/async documents what Async defines.
#include "scheduler/bindings.h"

#include "loop/park.h"
#include "loop/start.h"
#include "loop/wake.h"
#include "os/fork.h"
#include "scope/scope.h"
#include "shims.h"
#include "task/cancel.h"
#include "task/worker_fiber.h"
#include "task/external.h"
#include "task/task_loop.h"

static ID id_transfer, id_alive, id_async_task, id_home;

/*
 * call-seq: scheduler.transfer -> object
 *
 * Waits until #resume names the fiber, and returns the value given there; or until #push or #unblock does: nil.
 */
static VALUE transfer(VALUE self)
{
    return loop_await_resume(loop_entered(self));
}

/*
 * call-seq: scheduler.yield -> nil
 *
 * Yields to all ready fibers. As in Async's own loop the answer is nil.
 */
static VALUE yield_to_others(VALUE self)
{
    loop_yield(loop_entered(self));
    return Qnil;
}

// A transient external task serves all, such as the reader of a shared connection: no run waits for it, nor for what it
// starts, and the deadline of the code that happened to start it must not end it. Fiber.schedule starts external tasks
// that inherit nothing, either.
static struct external_bonds bonds_for(struct loop *loop, VALUE external)
{
    struct task_loop *tasks = task_loop_of(loop);
    bool transient = external_is_transient(external), inherits = !transient && !tasks->starts_unbound;
    tasks->starts_unbound = false;
    VALUE run = transient ? Qnil : loop->owner == loop->root ? tasks->run : task_of_owner(loop->owner)->run;
    return (struct external_bonds){.run = run, .inherits = inherits};
}

// The task of that fiber, if it stands for one of the library.
static struct task *external_of(struct loop *loop, VALUE fiber)
{
    struct wait_owner *owner = fiber_index_owner(&loop->running, fiber);
    struct task *task = owner ? task_of_owner(owner) : NULL;
    return task && is_external(task) ? task : NULL;
}

static bool started_here(struct loop *loop, VALUE fiber)
{
    return fiber_index_owner(&loop->running, fiber);
}

/*
 * call-seq: scheduler.resume(fiber, value = nil) -> nil
 *
 * Switches at once to a fiber that waits in this loop, which ends its wait, or to a new one. The caller continues after
 * all ready fibers. The fiber of an Async::Task starts as a task of Heddle's.
 */
static VALUE resume(int argc, VALUE *argv, VALUE self)
{
    rb_check_arity(argc, 1, UNLIMITED_ARGUMENTS);
    struct loop *loop = loop_entered(self);
    VALUE fiber = argv[0], value = argc > 1 ? argv[1] : Qnil;
    if (!RTEST(rb_obj_is_fiber(fiber))) return rb_funcallv(fiber, id_transfer, argc - 1, argv + 1);
    if (fiber == rb_fiber_current() || loop_resume(loop, fiber, value, order_beside_external(loop))) return Qnil;
    VALUE external = rb_attr_get(fiber, id_async_task);
    if (loop_keeps_idle(loop, fiber))
        rb_raise(rb_path2class("FiberError"), "dead fiber called: its task has ended, so nothing can resume it");
    if (NIL_P(external) || started_here(loop, fiber)) {
        loop_start(loop, loop->owner, fiber, value, RESUME_SOON); // or raises FiberError
    } else {
        struct external_bonds bonds = bonds_for(loop, external);
        external_start(loop, fiber, external, &bonds);
    }
    return Qnil;
}

/*
 * call-seq: scheduler.start_external_task(task) { ... } -> nil
 *
 * Runs the block of an Async::Task at once, as a task of Heddle's. The caller continues after all ready fibers.
 *
 * @api private
 */
static VALUE start_external_task(VALUE self, VALUE external)
{
    struct loop *loop = loop_entered(self);
    rb_need_block();
    struct external_bonds bonds = bonds_for(loop, external);
    external_run(loop, rb_block_proc(), external, &bonds);
    return Qnil;
}

/*
 * call-seq: scheduler.release_external_task(fiber) -> nil
 *
 * The run of the Async::Task that this fiber runs no longer waits for that task's end, and what the task has inherited
 * no longer binds it.
 *
 * @api private
 */
static VALUE release_external_task(VALUE self, VALUE fiber)
{
    struct task *task = external_of(loop_entered(self), fiber);
    if (task) external_release(task);
    return Qnil;
}

static VALUE forget_unbound(VALUE self)
{
    task_loop_of(loop_of(self))->starts_unbound = false;
    return Qnil;
}

/*
 * call-seq: scheduler.start_unbound { ... } -> object
 *
 * The next Async::Task, which the block starts, inherits neither the deadline nor the filters in force here.
 *
 * @api private
 */
static VALUE start_unbound(VALUE self)
{
    task_loop_of(loop_entered(self))->starts_unbound = true;
    return rb_ensure(yield_nothing, Qnil, forget_unbound, self);
}

static VALUE transfer_pushed(RB_BLOCK_CALL_FUNC_ARGLIST(unused, object))
{
    (void)unused, (void)argc, (void)argv, (void)blockarg;
    if (!RTEST(rb_funcall(object, id_alive, 0))) return Qnil;
    if (!RTEST(rb_obj_is_fiber(object))) return rb_funcall(object, id_transfer, 0);
    return resume(1, &object, rb_fiber_scheduler_get());
}

/*
 * call-seq: scheduler.push(object) -> nil
 *
 * Resumes a fiber, or calls #transfer of an object that is not a fiber, once the fibers that are ready now have had
 * their turn.
 */
static VALUE push(VALUE self, VALUE object)
{
    struct loop *loop = loop_entered(self);
    if (RTEST(rb_obj_is_fiber(object)) && loop_waits(loop, object)) {
        loop_unblock(loop, object);
        return Qnil;
    }
    VALUE task = task_create(rb_proc_new(transfer_pushed, object), Qnil, self, loop, false);
    worker_fiber_queue(loop, task_of(task));
    RB_GC_GUARD(task);
    return Qnil;
}

/*
 * call-seq: scheduler.raise_at_once(fiber, exception) -> true or false
 *
 * Raises the exception at once in a fiber that waits in this loop; the caller continues after all ready fibers. Returns
 * false for another fiber.
 *
 * @api private
 */
static VALUE raise_at_once(VALUE self, VALUE fiber, VALUE exception)
{
    struct loop *loop = loop_entered(self);
    return loop_raise(loop, fiber, exception, order_beside_external(loop)) ? Qtrue : Qfalse;
}

/*
 * call-seq: scheduler.put_off(fiber, exception) -> true or false
 *
 * If this fiber runs an Async::Task that is inside of Heddle.shield: the exception, which stops the task, is raised
 * after the shield. Returns false otherwise.
 *
 * @api private
 */
static VALUE put_off(VALUE self, VALUE fiber, VALUE exception)
{
    struct task *task = external_of(loop_entered(self), fiber);
    return task && external_put_off(task, exception) ? Qtrue : Qfalse;
}

/*
 * call-seq: scheduler.attend(timeout, polls) -> nil
 *
 * Runs the loop's other fibers until #wake, an interrupt, or the end of +timeout+ seconds (or nil); with +polls+, also
 * until the kernel has been polled once.
 *
 * @api private
 */
static VALUE attend(VALUE self, VALUE timeout, VALUE polls)
{
    struct loop *loop = loop_entered(self);
    loop_attend(loop, deadline_span(timeout), RTEST(polls));
    return Qnil;
}

/*
 * call-seq: scheduler.forked? -> true or false
 *
 * Returns whether this process is a child of fork, in which the scheduler's fibers do not exist.
 *
 * @api private
 */
static VALUE forked_p(VALUE self)
{
    const struct loop *loop = loop_of(self);
    return loop->fork_count != fork_count() ? Qtrue : Qfalse;
}

/*
 * call-seq: scheduler.abandon_external_tasks -> nil
 *
 * When the loop closes next, it waits for no Async::Task, and cancels all other tasks at once.
 *
 * @api private
 */
static VALUE abandon_external_tasks(VALUE self)
{
    struct task_loop *tasks = tasks_of(self);
    for (struct task *task = tasks->tasks.head, *next; task; task = next) {
        next = task->in[LIST_OF_LOOP].next;
        if (is_external(task)) task_abandon(task);
    }
    tasks->killed = true;
    return Qnil;
}

/*
 * call-seq: scheduler.idle_time -> Float
 *
 * The seconds that the loop has slept before it looked for what is ready now.
 *
 * @api private
 */
static VALUE idle_time(VALUE self)
{
    const struct loop *loop = loop_of(self);
    return DBL2NUM((double)(loop->statistics.idle - loop->last_sleep) / 1e9);
}

/*
 * call-seq: scheduler.polled_at -> Float
 *
 * The instant, in seconds of the monotonic clock, at which the loop has last begun to look for what is ready.
 *
 * @api private
 */
static VALUE polled_at(VALUE self)
{
    const struct loop *loop = loop_of(self);
    return DBL2NUM((double)(loop->last_poll - loop->last_sleep) / 1e9);
}

// ---- fibers outside of all tasks

static VALUE transfer_home(VALUE home)
{
    return rb_fiber_transfer(home, 0, NULL);
}

bool external_tasks_leave_root(struct loop *loop)
{
    VALUE home = rb_attr_get(loop->self, id_home);
    if (NIL_P(home) || home == rb_fiber_current() || loop_waits(loop, home)) return false;
    VALUE error = rb_errinfo();
    int state = 0;
    rb_protect(transfer_home, home, &state);
    if (!state) return true;
    // It has resumed this fiber (an Enumerator's, say), and continues only when this one yields or ends.
    if (!RTEST(rb_obj_is_kind_of(rb_errinfo(), rb_path2class("FiberError")))) rb_jump_tag(state);
    rb_set_errinfo(NIL_P(error) || is_exception(error) ? error : Qnil);
    return false;
}

/*
 * call-seq: scheduler.blocked_outside? -> true or false
 *
 * Returns whether a fiber outside of all tasks is blocked or sleeps in this loop.
 *
 * @api private
 */
static VALUE blocked_outside_p(VALUE self)
{
    const struct loop_wait *wait = loop_of(self)->root->wait;
    return wait && wait->state == WAIT_PARKED && wait->kind <= WAIT_SLEEP ? Qtrue : Qfalse;
}

// ---- with_timeout

static VALUE not_negative(VALUE seconds)
{
    return rb_obj_is_kind_of(seconds, rb_cNumeric) && RTEST(rb_funcall(seconds, '<', 1, INT2FIX(0))) ? INT2FIX(0)
                                                                                                     : seconds;
}

/*
 * call-seq: scheduler.timed(seconds, exception, message) { |scope| ... } -> object
 *
 * Raises the exception in the innermost wait of the block once +seconds+ are over, once.
 *
 * @api private
 */
static VALUE timed(VALUE self, VALUE seconds, VALUE exception, VALUE message)
{
    loop_entered(self);
    int64_t span = deadline_span(not_negative(seconds));
    struct scope *scope = scope_new(SCOPE_TIMEOUT, span);
    VALUE object = scope->self;
    scope->exception = exception;
    scope->message = message;
    scope_open(scope, scope_chain_current(), deadline_after(deadline_now(), span));
    VALUE result = scope_call(scope, rb_yield, object);
    RB_GC_GUARD(object);
    return result;
}

/*
 * call-seq: scheduler.end_of(scope) -> Float
 *
 * The instant, in seconds of the monotonic clock, at which the scope of #timed ends.
 *
 * @api private
 */
static VALUE end_of(VALUE self, VALUE scope)
{
    (void)self;
    deadline_t at = scope_of(scope)->at;
    return DBL2NUM(at == DEADLINE_NEVER ? HUGE_VAL : (double)at / 1e9);
}

/*
 * call-seq: scheduler.move_end(scope, instant) -> nil
 *
 * Sets that instant; nil: never.
 *
 * @api private
 */
static VALUE move_end(VALUE self, VALUE scope, VALUE instant)
{
    (void)self;
    scope_move(scope_of(scope), deadline_span(not_negative(instant)));
    return Qnil;
}

// ---- the classes

void external_tasks_define(VALUE klass)
{
    rb_define_method(klass, "transfer", transfer, 0);
    rb_define_method(klass, "yield", yield_to_others, 0);
    rb_define_method(klass, "resume", resume, -1);
    rb_define_method(klass, "push", push, 1);
    rb_define_method(klass, "end_of", end_of, 1);
    rb_define_method(klass, "move_end", move_end, 2);
    rb_define_private_method(klass, "raise_at_once", raise_at_once, 2);
    rb_define_private_method(klass, "put_off", put_off, 2);
    rb_define_private_method(klass, "attend", attend, 2);
    rb_define_private_method(klass, "forked?", forked_p, 0);
    rb_define_private_method(klass, "abandon_external_tasks", abandon_external_tasks, 0);
    rb_define_private_method(klass, "blocked_outside?", blocked_outside_p, 0);
    rb_define_private_method(klass, "idle_time", idle_time, 0);
    rb_define_private_method(klass, "polled_at", polled_at, 0);
    rb_define_private_method(klass, "start_external_task", start_external_task, 1);
    rb_define_private_method(klass, "release_external_task", release_external_task, 1);
    rb_define_private_method(klass, "start_unbound", start_unbound, 0);
    rb_define_private_method(klass, "timed", timed, 3);
}

void Init_heddle_external_tasks(void)
{
    id_transfer = rb_intern("transfer");
    id_alive = rb_intern("alive?");
    id_async_task = rb_intern("@async_task");
    id_home = rb_intern("@home");
}
