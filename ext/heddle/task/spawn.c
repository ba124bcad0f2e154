#include "task/spawn.h"

#include "loop/without_wait.h"
#include "shims.h"
#include "task/cancel.h"
#include "task/worker_fiber.h"
#include "task/current.h"
#include "task/other_scheduler.h"
#include "task/task_loop.h"

static ID keyword_ids[1];

static void start(struct task *task)
{
    if (task->owner.loop) {
        worker_fiber_start(task->owner.loop, task, false, Qnil);
    } else {
        other_scheduler_start(task);
    }
}

/*
 * call-seq: Heddle::Task.prepare(scheduler, name, on_end, claimed) { ... } -> Heddle::Task
 *
 * For pools: a task that waits for its start. +scheduler+ may be the pool itself, whose +run_queue+ is called for those
 * who wait for the task before #enlist has given it a scheduler. Once the task has ended, +on_end+ is called with the
 * task on its fiber; +on_end+ may return another prepared task, which then runs on the same fiber. +claimed+: the
 * value will be asked for.
 *
 * @api private
 */
static VALUE spawn_prepare(VALUE klass, VALUE scheduler, VALUE name, VALUE on_end, VALUE claimed)
{
    (void)klass;
    struct task *parent = task_current();
    if (parent && parent->owner.loop) loop_check_pending_start(parent->owner.loop);
    VALUE object = task_create(rb_block_proc(), name, scheduler, loop_of(scheduler), true);
    struct task *task = task_of(object);
    task->on_end = on_end;
    task->claimed = RTEST(claimed);
    task->storage = fiber_storage(); // another fiber than the spawner may start it
    RB_GC_GUARD(object);
    return object;
}

/*
 * call-seq: task.enlist(scheduler) -> task
 *
 * Gives this prepared task its scheduler, and makes the loop, and the run of the calling task, wait for it. The caller
 * must hold the task already: if an exception lost the task, it would never end.
 *
 * @api private
 */
static VALUE enlist(VALUE self, VALUE scheduler)
{
    struct task *task = task_of(self);
    const struct task *parent = task_current();
    task_settle(task, scheduler);
    task_enlist(task, parent ? parent->run : Qnil);
    return self;
}

/*
 * call-seq: Heddle::Task.withdrawals -> Integer
 *
 * The number of tasks that were cancelled before their start.
 *
 * @api private
 */
static VALUE withdrawals(VALUE klass)
{
    (void)klass;
    return ULONG2NUM(task_withdrawals());
}

/*
 * call-seq: task.start -> task
 *
 * Starts a prepared task: on the scheduler's own thread at once; from another thread when the loop runs next. Does
 * nothing for a task that was cancelled meanwhile.
 *
 * @api private
 */
static VALUE start_prepared(VALUE self)
{
    struct task *task = task_of(self);
    if (task->status == TASK_WITHDRAWN) return self;
    if (task->status != TASK_QUEUED) rb_raise(rb_eArgError, "%" PRIsVALUE " has already been started", self);
    struct loop *loop = task->owner.loop;
    if (loop && loop->closed)
        rb_raise(heddle_eSchedulerClosed, "%" PRIsVALUE " cannot start: its loop has ended", self);
    if (loop && loop->thread && loop->thread != rb_thread_current()) {
        task->posted = true;
        task_loop_post(loop, self);
        return self;
    }
    if (loop) loop_enter(loop);
    start(task);
    return self;
}

/*
 * call-seq: Heddle.spawn(name: nil) { ... } -> Heddle::Task
 *
 * Starts the block as a task of the running scheduler and of the innermost Heddle.run. The block runs at once, until
 * its first wait; then the caller continues. The fiber may have run other tasks before. Like a new fiber, it starts
 * without fiber-locals and instance variables, and with a copy of the caller's Fiber storage (Ruby >= 3.2).
 *
 * [name] String for reports and Task#inspect.
 *
 * Raises ArgumentError without a block, Heddle::SchedulerMissing where no scheduler is active, Heddle::WrongThread,
 * Heddle::SchedulerClosed, Heddle::LimitReached when the system has no room for another fiber.
 */
static VALUE spawn(int argc, VALUE *argv, VALUE self)
{
    (void)self;
    VALUE name = Qnil;
    if (argc > 0) {
        VALUE options;
        rb_scan_args(argc, argv, "0:", &options);
        rb_get_kwargs(options, keyword_ids, 0, 1, &name);
        if (name == Qundef) name = Qnil;
    }
    if (!rb_block_given_p()) rb_raise(rb_eArgError, "Heddle.spawn needs a block: the work that the task does");
    return task_spawn(rb_block_proc(), name, Qundef);
}

VALUE task_spawn(VALUE block, VALUE name, VALUE run)
{
    VALUE scheduler = rb_fiber_scheduler_get();
    if (NIL_P(scheduler)) {
        rb_raise(heddle_eSchedulerMissing, "no scheduler is active here: wrap the call in Heddle.run { }, or set one "
                                           "with Fiber.set_scheduler(Heddle::Scheduler.new)");
    }
    if (!NIL_P(name)) name = rb_obj_as_string(name);
    struct loop *loop = loop_of(scheduler);
    if (loop) {
        loop_enter(loop);
        loop_check_pending_start(loop);
    }
    if (run == Qundef) {
        struct task *parent = loop ? task_of_owner(loop->owner) : task_current();
        run = parent ? parent->run : Qnil;
    }
    VALUE object = task_create(block, name, scheduler, loop, true);
    task_enlist(task_of(object), run);
    start(task_of(object));
    return object;
}

void spawn_define(VALUE task_class)
{
    keyword_ids[0] = rb_intern("name");
    rb_define_singleton_method(task_class, "prepare", spawn_prepare, 4);
    rb_define_singleton_method(task_class, "withdrawals", withdrawals, 0);
    rb_define_method(task_class, "enlist", enlist, 1);
    rb_define_method(task_class, "start", start_prepared, 0);
    rb_define_singleton_method(heddle_module, "spawn", spawn, -1);
}
