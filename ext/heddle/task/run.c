#include "task/run.h"

#include "loop/loop.h"
#include "os/fork.h"
#include "shims.h"
#include "task/current.h"
#include "task/join.h"
#include "task/spawn.h"
#include "task/task_loop.h"
#include "task/task_run.h"

static void run_mark(void *pointer)
{
    struct run *run = pointer;
    rb_gc_mark(run->cancelling.owner); // the run itself: pins it
    rb_gc_mark(run->block);
    rb_gc_mark(run->main);
    for (size_t i = 0; i < run->failed; i++)
        rb_gc_mark(run->failures[i]);
    rb_gc_mark(run->fatal);
    rb_gc_mark(run->waiters);
    task_list_mark(&run->tasks);
}

static void run_release(void *pointer)
{
    xfree(pointer);
}

static size_t run_memsize(const void *pointer)
{
    (void)pointer;
    return sizeof(struct run);
}

// Not WB_PROTECTED: tasks enter and leave its list all the time. They are pinned: their records know each other.
static const rb_data_type_t run_type = {
    .wrap_struct_name = "Heddle::Run",
    .function = {.dmark = run_mark, .dfree = run_release, .dsize = run_memsize},
    .flags = RUBY_TYPED_FREE_IMMEDIATELY,
};

static void wait_for_end(VALUE object, deadline_t until);

static VALUE run_allocate(VALUE klass)
{
    struct run *run;
    VALUE self = TypedData_Make_Struct(klass, struct run, &run_type, run);
    run->cancelling = (struct cancelling){.owner = self, .tasks = &run->tasks, .wait = wait_for_end};
    run->tasks.kind = LIST_OF_RUN;
    run->block = run->main = run->fatal = run->waiters = Qnil;
    return self;
}

static VALUE start_and_wait(VALUE object)
{
    struct run *run = run_of(object);
    if (NIL_P(run->main)) task_spawn(run->block, Qnil, object);
    while (run->tasks.count > 0 && NIL_P(run->fatal))
        join_wait(object, &run->waiters, DEADLINE_NEVER);
    return Qnil;
}

static void wait_for_end(VALUE object, deadline_t until)
{
    struct run *run = run_of(object);
    if (run->tasks.count > 0) join_wait(object, &run->waiters, until);
}

// The block's error, an interrupt or a cancellation of the caller ends the remaining tasks in an orderly way before it
// continues. A second one meanwhile cancels the tasks that are still cleaning up again.
static VALUE run_finish(VALUE object)
{
    struct run *run = run_of(object);
    if (run->tasks.count > 0 && run->forks == fork_count()) cancel_and_wait(&run->cancelling);
    struct loop *loop = context_of_thread().loop;
    if (loop && task_loop_of(loop)->run == object) task_loop_of(loop)->run = Qnil;
    return Qnil;
}

static void raise_unclaimed(const struct run *run)
{
    for (size_t i = 0; i < run->failed; i++) {
        struct task *task = task_of(run->failures[i]);
        if (!task->claimed) task_raise_error(task->result);
    }
}

/*
 * call-seq: run.call(grace, owns) { ... } -> object
 *
 * Runs the block as a task of the current scheduler. Waits until that task and all tasks that were spawned inside have
 * ended. +owns+: the scheduler was set for this run, so that fibers of Fiber.schedule belong to the run, too. See
 * Heddle.run.
 *
 * @api private
 */
static VALUE run_call(VALUE self, VALUE grace, VALUE owns)
{
    struct run *run = run_of(self);
    run->cancelling.grace = deadline_span(grace);
    rb_need_block();
    if (!NIL_P(run->block)) rb_raise(rb_eArgError, "a Heddle::Run can be called only once: run_call Heddle.run again");
    run->block = rb_block_proc();
    run->forks = fork_count();
    if (RTEST(owns)) task_loop_of(context_of_thread().loop)->run = self;
    rb_ensure(start_and_wait, self, run_finish, self);
    if (!NIL_P(run->fatal)) task_raise_error(run->fatal);
    raise_unclaimed(run);
    struct task *main = task_of(run->main);
    if (main->status >= TASK_CANCELLED)
        task_raise_cancelled(main, rb_str_new_cstr("the block of this Heddle.run was cancelled, so it has no value"));
    return main->result;
}

/*
 * Document-class: Heddle::Run
 *
 * One Heddle.run, with the tasks that were started inside.
 *
 * @api private
 */
void Init_heddle_run(void)
{
    VALUE cRun = rb_define_class_under(heddle_module, "Run", rb_cObject);
    rb_define_alloc_func(cRun, run_allocate);
    rb_define_method(cRun, "call", run_call, 2);
}
