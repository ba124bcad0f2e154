// Heddle::Task, the Ruby class that binds a task.
#include "scheduler/bindings.h"

#include "loop/hang_up.h"
#include "os/fork.h"
#include "scheduler/bindings.h"
#include "shims.h"
#include "task/cancel.h"
#include "task/current.h"
#include "task/other_scheduler.h"
#include "task/join.h"
#include "task/run.h"
#include "task/spawn.h"
#include "task/task_loop.h"
#include "task/task_run.h"

static ID id_run_queue;

// ---- instance methods

// Returns whether the task is in the queue of a pool, outside of any run.
static bool waits_for_a_run(const struct task *task)
{
    return task->status == TASK_QUEUED && !task->owner.loop && rb_respond_to(task->scheduler, id_run_queue);
}

static void check_that_it_can_end(const struct task *task)
{
    const struct loop *loop = task->owner.loop;
    if (loop && (loop->closed || loop->fork_count != fork_count()))
        rb_raise(heddle_eSchedulerClosed,
                 "%" PRIsVALUE
                 " cannot end in this process: its scheduler was closed, or belongs to the parent process",
                 task->owner.self);
}

// Waits until the task has ended; returns false if the deadline comes first.
static bool wait_for_end(struct task *task, deadline_t deadline)
{
    if (waits_for_a_run(task)) rb_funcall(task->scheduler, id_run_queue, 1, deadline_left(deadline));
    if (task_runs(task) && task == task_current()) {
        rb_raise(rb_eThreadError, "%" PRIsVALUE " cannot wait for its own end", task->owner.self);
    }
    while (!task_ended(task)) {
        check_that_it_can_end(task);
        if (deadline != DEADLINE_NEVER && deadline_now() >= deadline) return false;
        join_wait(task->owner.self, &task->waiters, deadline);
    }
    return true;
}

/*
 * call-seq: task.value -> object
 *
 * Waits for the task's end and returns the block's value. Cancelling the waiter does not cancel the task.
 *
 * Raises the block's exception (Heddle.run then no longer raises it), Heddle::TaskCancelled for a task that was
 * cancelled (with #error as its cause), ThreadError in the task itself.
 */
static VALUE value(VALUE self)
{
    struct task *task = task_of(self);
    if (waits_for_a_run(task)) task->claimed = true; // else that run would raise its error
    wait_for_end(task, DEADLINE_NEVER);
    task->claimed = true;
    if (task->status == TASK_COMPLETED) return task->result;
    if (task->status == TASK_FAILED) task_raise_error(task->result);
    task_raise_cancelled(task, rb_sprintf("%" PRIsVALUE " was cancelled, so it has no value", self));
}

/*
 * call-seq: task.wait(timeout = nil) -> task or nil
 *
 * Waits for the task's end, at most +timeout+ seconds; returns nil when they are over first. Does not raise the task's
 * exception, which Heddle.run still raises.
 */
static VALUE wait_for_task(int argc, VALUE *argv, VALUE self)
{
    rb_check_arity(argc, 0, 1);
    int64_t span = deadline_span(argc ? argv[0] : Qnil);
    return wait_for_end(task_of(self), deadline_after(deadline_now(), span)) ? self : Qnil;
}

/*
 * call-seq: task.cancel -> task
 *
 * Raises Heddle::Cancellation in the task's innermost wait, or in its next wait if the task is not waiting, so that its
 * +ensure+ blocks run. Returns at once; Task#wait waits for the end. Does nothing for a task that has ended. Any thread
 * may call it. In the task itself, this method raises instead of returning.
 */
static VALUE cancel(VALUE self)
{
    task_cancel(task_of(self), false);
    return self;
}

static void need_exception(VALUE exception)
{
    if (!RTEST(rb_obj_is_kind_of(exception, rb_eException)))
        rb_raise(rb_eTypeError, "Heddle::Task#interrupt raises an exception, not %+" PRIsVALUE, exception);
}

/*
 * call-seq: task.interrupt(exception) -> task
 *
 * Like #cancel, but raises +exception+ (an Exception) instead of Heddle::Cancellation, and the task has not been
 * cancelled thereby: code that rescues the exception goes on, and may be interrupted or cancelled again. Does nothing
 * while something else is still to be raised, and in a task that stands for one of Async's.
 *
 * Raises TypeError for an object that is not an exception.
 *
 * @api private
 */
static VALUE interrupt(VALUE self, VALUE exception)
{
    need_exception(exception);
    task_interrupt(task_of(self), exception);
    return self;
}

/*
 * call-seq: task.withdraw(exception) -> task
 *
 * Takes back an #interrupt with +exception+ that no wait has raised yet.
 *
 * @api private
 */
static VALUE withdraw(VALUE self, VALUE exception)
{
    task_withdraw(task_of(self), exception);
    return self;
}

static VALUE yield(VALUE unused)
{
    (void)unused;
    return rb_yield_values(0);
}

/*
 * call-seq: Heddle::Task.interrupt_at_hang_up(socket, exception) { ... } -> object
 *
 * Runs the block, and returns its value. When the peer of the socket closes its side or resets the connection
 * meanwhile, interrupts the running task with +exception+, as Task#interrupt does, whatever the task waits for; but not
 * after the block. Costs no fiber. Outside of a task, and under another scheduler, only runs the block.
 *
 * Raises TypeError for an object that is not an exception, IOError for a closed socket.
 *
 * @api private
 */
static VALUE interrupt_at_hang_up(VALUE klass, VALUE socket, VALUE exception)
{
    (void)klass;
    need_exception(exception);
    int descriptor = rb_io_descriptor(socket);
    struct task *task = task_current();
    if (!task || !task->owner.loop) return yield(Qnil);
    return loop_call_until_hang_up(task->owner.loop, descriptor, exception, yield, Qnil);
}

/*
 * call-seq: task.status -> Symbol
 *
 * +:queued+ (in a pool, not started yet), +:running+ (its code runs now), +:waiting+, +:completed+, +:failed+ or
 *   +:cancelled+.
 */
static VALUE status(VALUE self)
{
    struct task *task = task_of(self);
    switch (task->status) {
    case TASK_COMPLETED: return ID2SYM(rb_intern("completed"));
    case TASK_FAILED: return ID2SYM(rb_intern("failed"));
    case TASK_CANCELLED:
    case TASK_WITHDRAWN: return ID2SYM(rb_intern("cancelled"));
    case TASK_QUEUED: return ID2SYM(rb_intern("queued"));
    case TASK_RUNNING:
    case TASK_CANCELLING: break;
    }
    bool runs = task->owner.loop ? task->owner.loop->owner == &task->owner : task == task_current();
    return ID2SYM(rb_intern(runs ? "running" : "waiting"));
}

/*
 * call-seq: task.ended? -> true or false
 */
static VALUE ended_p(VALUE self)
{
    return task_ended(task_of(self)) ? Qtrue : Qfalse;
}

/*
 * call-seq: task.name -> String or nil
 *
 * The name given to Heddle.spawn; for a task of Async's its annotation.
 */
static VALUE name(VALUE self)
{
    const struct task *task = task_of(self);
    if (NIL_P(task->owner.external)) return task->name;
    VALUE annotation = rb_funcall(task->owner.external, rb_intern("annotation"), 0);
    return NIL_P(annotation) ? Qnil : rb_obj_as_string(annotation);
}

/*
 * call-seq: task.error -> Exception or nil
 *
 * The exception that the task failed with; does not raise it. For a cancelled task, the error that its code made of the
 * Heddle::Cancellation, or that its clean-up raised.
 */
static VALUE error(VALUE self)
{
    return task_error(task_of(self));
}

/*
 * call-seq: task.started? -> true or false
 *
 * Returns whether the block was called or will be: false once it is certain that it never will be.
 *
 * @api private
 */
static VALUE started_p(VALUE self)
{
    const struct task *task = task_of(self);
    return task_started(task) || task->posted ? Qtrue : Qfalse;
}

/*
 * call-seq: task.claimed? -> true or false
 *
 * Returns whether code asked for the task's value, so that Heddle.run need not raise its error.
 */
static VALUE claimed_p(VALUE self)
{
    return task_of(self)->claimed ? Qtrue : Qfalse;
}

/*
 * call-seq: inspect -> String
 *
 * The task's number, name and status.
 */
static VALUE inspect(VALUE self)
{
    unsigned long long number = task_of(self)->owner.number;
    VALUE named = name(self);
    VALUE quoted = NIL_P(named) ? rb_str_new_cstr("") : rb_sprintf(" %+" PRIsVALUE, named);
    return rb_sprintf("#<%" PRIsVALUE " %llu%" PRIsVALUE " %" PRIsVALUE ">", rb_obj_class(self), number, quoted,
                      rb_sym2str(status(self)));
}

/*
 * call-seq: Heddle::Task.current -> Heddle::Task or nil
 *
 * The task whose code runs now; nil outside of any task.
 */
static VALUE current(VALUE klass)
{
    (void)klass;
    struct task *task = task_current();
    return task ? task->owner.self : Qnil;
}

/*
 * Document-class: Heddle::Task
 *
 * A task, as started by Heddle.spawn and by pools: a block that runs concurrently with others in one thread, on a fiber
 * of its own. Any thread may call its methods.
 */
void Init_heddle_task_class(void)
{
    id_run_queue = rb_intern("run_queue");
    rb_undef_alloc_func(heddle_cTask);
    rb_undef_method(CLASS_OF(heddle_cTask), "new");
    rb_define_singleton_method(heddle_cTask, "current", current, 0);
    rb_define_singleton_method(heddle_cTask, "interrupt_at_hang_up", interrupt_at_hang_up, 2);
    rb_define_method(heddle_cTask, "value", value, 0);
    rb_define_method(heddle_cTask, "wait", wait_for_task, -1);
    rb_define_method(heddle_cTask, "cancel", cancel, 0);
    rb_define_method(heddle_cTask, "interrupt", interrupt, 1);
    rb_define_method(heddle_cTask, "withdraw", withdraw, 1);
    rb_define_method(heddle_cTask, "status", status, 0);
    rb_define_method(heddle_cTask, "ended?", ended_p, 0);
    rb_define_method(heddle_cTask, "name", name, 0);
    rb_define_method(heddle_cTask, "error", error, 0);
    rb_define_method(heddle_cTask, "started?", started_p, 0);
    rb_define_method(heddle_cTask, "claimed?", claimed_p, 0);
    rb_define_method(heddle_cTask, "inspect", inspect, 0);
    rb_define_alias(heddle_cTask, "to_s", "inspect");
    task_view_define(heddle_cTask);
    spawn_define(heddle_cTask);
}
