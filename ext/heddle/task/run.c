#include "task/run.h"

#include "loop/loop.h"
#include "os/fork.h"
#include "shims.h"
#include "task/bindings.h"
#include "task/cancel.h"
#include "task/current.h"
#include "task/join.h"
#include "task/spawn.h"
#include "task/task_loop.h"
#include "task/task_run.h"

enum { FAILURES_KEPT = 64 };

struct run {
    VALUE block;
    struct task *head, *tail; // the tasks that have not ended, in order of their start
    size_t count;
    VALUE main;                    // the task that runs the block
    VALUE failures[FAILURES_KEPT]; // tasks that failed, in order; an Array could fail to grow while a task ends
    size_t failed;
    VALUE fatal; // an error that ends the whole run: the block's own, SystemExit, a signal; or nil
    VALUE waiters;
    struct cancelling cancelling;
    unsigned forks; // fork_count() at the start: in a child of fork the tasks are the parent's, and never end
};

static void mark(void *pointer)
{
    struct run *run = pointer;
    rb_gc_mark(run->cancelling.owner); // the run itself: pins it
    rb_gc_mark(run->block);
    rb_gc_mark(run->main);
    for (size_t i = 0; i < run->failed; i++)
        rb_gc_mark(run->failures[i]);
    rb_gc_mark(run->fatal);
    rb_gc_mark(run->waiters);
    for (struct task *task = run->head; task; task = task->run_next)
        rb_gc_mark(task->owner.self);
}

static void release(void *pointer)
{
    xfree(pointer);
}

static size_t memsize(const void *pointer)
{
    (void)pointer;
    return sizeof(struct run);
}

static const rb_data_type_t run_type = {
    .wrap_struct_name = "Heddle::Run",
    .function = {.dmark = mark, .dfree = release, .dsize = memsize},
    .flags = RUBY_TYPED_FREE_IMMEDIATELY,
};

static struct run *run_of(VALUE object)
{
    return RTYPEDDATA_DATA(object); // a receiver of our own method, or a task's own
}

static VALUE tasks(VALUE object);
static void wait_for_end(VALUE object, deadline_t until);

static VALUE allocate(VALUE klass)
{
    struct run *run;
    VALUE self = TypedData_Make_Struct(klass, struct run, &run_type, run);
    run->cancelling = (struct cancelling){.owner = self, .tasks = tasks, .wait = wait_for_end};
    run->block = run->main = run->fatal = run->waiters = Qnil;
    return self;
}

void run_add(VALUE object, struct task *task)
{
    struct run *run = run_of(object);
    if (NIL_P(run->main)) run->main = task->owner.self;
    task->run_prev = run->tail;
    if (run->tail) {
        run->tail->run_next = task;
    } else {
        run->head = task;
    }
    run->tail = task;
    run->count++;
}

int run_remove(VALUE object, struct task *task)
{
    struct run *run = run_of(object);
    if (task->run_prev) {
        task->run_prev->run_next = task->run_next;
    } else {
        run->head = task->run_next;
    }
    if (task->run_next) {
        task->run_next->run_prev = task->run_prev;
    } else {
        run->tail = task->run_prev;
    }
    task->run_prev = task->run_next = NULL;
    run->count--;
    return run->count == 0 ? join_wake_all(object, run->waiters) : 0;
}

static VALUE tasks(VALUE object)
{
    struct run *run = run_of(object);
    VALUE all = rb_ary_new();
    for (struct task *task = run->head; task; task = task->run_next)
        rb_ary_push(all, task->owner.self);
    return all;
}

static bool ends_the_run(const struct run *run, const struct task *task)
{
    return task->owner.self == run->main || is_fatal(task->result);
}

bool run_raises_itself(VALUE object, const struct task *task)
{
    struct run *run = run_of(object);
    return NIL_P(run->fatal) && ends_the_run(run, task);
}

// The run raises one failure at its end: the first that no code has claimed by then. A server's run may see millions of
// failures, so claimed ones are dropped, and the first FAILURES_KEPT of the others are kept (all were reported as they
// happened).
static void keep_failure(struct run *run, VALUE task)
{
    if (run->failed == FAILURES_KEPT) {
        size_t unclaimed = 0;
        for (size_t i = 0; i < run->failed; i++) {
            if (!task_of(run->failures[i])->claimed) run->failures[unclaimed++] = run->failures[i];
        }
        run->failed = unclaimed;
    }
    if (run->failed < FAILURES_KEPT) run->failures[run->failed++] = task;
}

static VALUE cancel_others(VALUE object)
{
    cancel_all(tasks(object), false);
    run_of(object)->cancelling.cancelled = true; // else the end of the run cancels them
    return Qnil;
}

int run_task_ended(VALUE object, struct task *task)
{
    struct run *run = run_of(object);
    int state = 0, raised = 0;
    if (run->forks != fork_count()) return 0;
    if (task->status == TASK_FAILED) {
        if (!ends_the_run(run, task)) {
            keep_failure(run, task->owner.self);
        } else if (NIL_P(run->fatal)) {
            run->fatal = task->result;
            rb_protect(cancel_others, object, &raised);
            state = join_wake_all(object, run->waiters);
        }
    }
    int last = run_remove(object, task);
    return last ? last : state ? state : raised;
}

static VALUE start_and_wait(VALUE object)
{
    struct run *run = run_of(object);
    if (NIL_P(run->main)) task_spawn(run->block, Qnil, object);
    while (run->count > 0 && NIL_P(run->fatal))
        join_wait(object, &run->waiters, DEADLINE_NEVER);
    return Qnil;
}

static void wait_for_end(VALUE object, deadline_t until)
{
    struct run *run = run_of(object);
    if (run->count > 0) join_wait(object, &run->waiters, until);
}

// The block's error, an interrupt or a cancellation of the caller ends the remaining tasks in an orderly way before it
// continues. A second one meanwhile cancels the tasks that are still cleaning up again.
static VALUE finish(VALUE object)
{
    struct run *run = run_of(object);
    if (run->count > 0 && run->forks == fork_count()) cancel_and_wait(&run->cancelling);
    struct loop *loop = place_of_thread().loop;
    if (loop && task_loop_of(loop)->run == object) task_loop_of(loop)->run = Qnil;
    return Qnil;
}

static void raise_unclaimed(const struct run *run)
{
    for (size_t i = 0; i < run->failed; i++) {
        struct task *task = task_of(run->failures[i]);
        if (!task->claimed) rb_exc_raise(task->result);
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
static VALUE call(VALUE self, VALUE grace, VALUE owns)
{
    struct run *run = run_of(self);
    run->cancelling.grace = deadline_span(grace);
    rb_need_block();
    if (!NIL_P(run->block)) rb_raise(rb_eArgError, "a Heddle::Run can be called only once: call Heddle.run again");
    run->block = rb_block_proc();
    run->forks = fork_count();
    if (RTEST(owns)) task_loop_of(place_of_thread().loop)->run = self;
    rb_ensure(start_and_wait, self, finish, self);
    if (!NIL_P(run->fatal)) rb_exc_raise(run->fatal);
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
    rb_define_alloc_func(cRun, allocate);
    rb_define_method(cRun, "call", call, 2);
}
