#include "scheduler/task_class.h"

#include "os/fork.h"
#include "scheduler/attach.h"
#include "scheduler/scheduler.h"
#include "scheduler/task_view.h"
#include "shims.h"
#include "task/cancel.h"
#include "task/foreign.h"
#include "task/join.h"
#include "task/run.h"
#include "task/spawn.h"

#include <stdatomic.h>
#include <string.h>

static VALUE cTask;

// ---- the object

static void mark(void *pointer)
{
    task_mark(pointer);
}

// Those of collected tasks, to be used again: programs start tasks all the time, and making and freeing these was a twentieth
// of what each costs. More are given back.
enum { SPARES = 1024 };

static struct task *spares; // linked by `next`
static uint32_t spare_count;
// A Ractor's thread may collect tasks while ours makes one. Who finds it taken does without.
static atomic_flag spares_taken = ATOMIC_FLAG_INIT;

static bool keep_spare(struct task *task)
{
    if (atomic_flag_test_and_set_explicit(&spares_taken, memory_order_acquire)) return false;
    bool room = spare_count < SPARES;
    if (room) {
        task->next = spares;
        spares = task;
        spare_count++;
    }
    atomic_flag_clear_explicit(&spares_taken, memory_order_release);
    return room;
}

static struct task *take_spare(void)
{
    if (atomic_flag_test_and_set_explicit(&spares_taken, memory_order_acquire)) return NULL;
    struct task *task = spares;
    if (task) {
        spares = task->next;
        spare_count--;
    }
    atomic_flag_clear_explicit(&spares_taken, memory_order_release);
    return task;
}

static void release(void *pointer)
{
    if (!keep_spare(pointer)) xfree(pointer);
}

// A cleared one. Raises NoMemoryError.
static struct task *new_task(void)
{
    struct task *task = take_spare();
    return task ? memset(task, 0, sizeof(*task)) : ZALLOC(struct task);
}

static size_t memsize(const void *pointer)
{
    (void)pointer;
    return sizeof(struct task);
}

// Not WB_PROTECTED: scopes come and go in a running task, marking it again at each minor GC is cheaper than a barrier
// at each of them. Its references are pinned: the loop goes by the addresses of fibers.
static const rb_data_type_t task_type = {
    .wrap_struct_name = "Heddle::Task",
    .function = {.dmark = mark, .dfree = release, .dsize = memsize},
    .flags = RUBY_TYPED_FREE_IMMEDIATELY,
};

struct task *task_of(VALUE object)
{
    return rb_check_typeddata(object, &task_type);
}

// The deadline in force where it is created binds a task to its end.
static void inherit_deadline(struct task *task)
{
    struct scope_chain *chain = scope_chain_current();
    deadline_t at = scope_in_force(chain);
    if (at == DEADLINE_NEVER) return;
    const struct scope *binding = chain->innermost;
    while (binding->at != at || binding->kind == SCOPE_TIMEOUT)
        binding = binding->outer;
    struct scope *scope = scope_new(SCOPE_DEADLINE, binding->span);
    scope->inherited = true;
    scope_open(scope, &task->scopes, at);
}

VALUE task_create(VALUE block, VALUE name, VALUE scheduler, struct loop *loop, VALUE run, bool inherits)
{
    VALUE self = TypedData_Wrap_Struct(cTask, &task_type, NULL);
    struct task *task = RTYPEDDATA_DATA(self) = new_task();
    task->self = self;
    task->block = block;
    task->name = name;
    task->scheduler = scheduler;
    task->loop = loop;
    task->result = task->fiber = task->waiters = task->on_end = Qnil;
    task->storage = Qundef;
    task->status = TASK_QUEUED;
    task->run = run;
    task->chain = &task->scopes;
    if (loop) task->scopes.task = task;
    if (inherits) inherit_deadline(task);
    if (loop) {
        task->prev = loop->tasks_tail;
        if (loop->tasks_tail) {
            loop->tasks_tail->next = task;
        } else {
            loop->tasks_head = task;
        }
        loop->tasks_tail = task;
        loop->task_count++;
        task->listed = true;
    }
    if (!NIL_P(run)) run_add(run, task);
    return self;
}

void task_unlist(struct task *task)
{
    struct loop *loop = task->loop;
    if (!task->listed) return;
    task->listed = false;
    if (task->prev) {
        task->prev->next = task->next;
    } else {
        loop->tasks_head = task->next;
    }
    if (task->next) {
        task->next->prev = task->prev;
    } else {
        loop->tasks_tail = task->prev;
    }
    task->prev = task->next = NULL;
    loop->task_count--;
    if (loop->task_count == 0 && loop->drain_fiber) loop_unblock(loop, loop->drain_fiber);
}

void task_forget(struct task *task)
{
    task->status = TASK_CANCELLED;
    task_unlist(task);
    if (!NIL_P(task->run)) run_remove(task->run, task);
}

struct task *task_current(void)
{
    struct loop *loop = scheduler_loop(rb_fiber_scheduler_get());
    if (!loop) return foreign_current_task();
    return loop->task->self ? loop->task : NULL;
}

// ---- instance methods

struct ending {
    struct task *task;
    deadline_t deadline;
};

static VALUE join_task(VALUE argument)
{
    struct ending *ending = (struct ending *)argument;
    struct task *task = ending->task;
    while (task->status <= TASK_RUNNING && (ending->deadline == DEADLINE_NEVER || deadline_now() < ending->deadline)) {
        join_wait(task->self, &task->waiters, ending->deadline);
    }
    return Qnil;
}

// Waits until the task has ended; false when the deadline came first.
static bool wait_for_end(struct task *task, deadline_t deadline)
{
    if (task->status == TASK_RUNNING && task == task_current()) {
        rb_raise(rb_eThreadError, "%" PRIsVALUE " cannot wait for its own end", task->self);
    }
    if (task->status <= TASK_RUNNING && task->loop && (task->loop->closed || task->loop->fork_count != fork_count()))
        rb_raise(heddle_eSchedulerClosed,
                 "%" PRIsVALUE
                 " never ends here: its scheduler was closed, or is that of the process which forked this one",
                 task->self);
    struct ending ending = {.task = task, .deadline = deadline};
    // The loop of a pool of its own runs on this thread, or nowhere.
    if (task->status <= TASK_RUNNING && task->loop && task->loop->thread == rb_thread_current() &&
        NIL_P(rb_fiber_scheduler_get())) {
        scheduler_attached(task->scheduler, join_task, (VALUE)&ending);
    } else {
        join_task((VALUE)&ending);
    }
    return task->status > TASK_RUNNING;
}

/*
 * call-seq: task.value -> object
 *
 * Waits for the task's end and returns what its block returned. Cancelling the waiter does not cancel the task.
 *
 * Raises what the block raised (it is then not raised from Heddle.run any more), Heddle::TaskCancelled for a task that
 * was cancelled, ThreadError in the task itself.
 */
static VALUE value(VALUE self)
{
    struct task *task = task_of(self);
    wait_for_end(task, DEADLINE_NEVER);
    task->claimed = true;
    if (task->status == TASK_COMPLETED) return task->result;
    if (task->status == TASK_FAILED) rb_exc_raise(task->result);
    rb_raise(heddle_eTaskCancelled, "%" PRIsVALUE " was cancelled: it has no value", self);
}

/*
 * call-seq: task.wait(timeout = nil) -> task or nil
 *
 * Waits for the task's end, at most +timeout+ seconds; nil when that is over first. Raises nothing of what the task
 * raised, and leaves it to be raised from Heddle.run.
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
 * Raises Heddle::Cancellation in the task, in its innermost wait (or in the next one, if it is not waiting), so that its
 * +ensure+ blocks run. Returns at once; Task#wait waits for the end. Does nothing for a task that has ended. May be called
 * from any thread; a task that cancels itself does not return from here.
 */
static VALUE cancel(VALUE self)
{
    task_cancel(task_of(self), false);
    return self;
}

/*
 * call-seq: task.status -> Symbol
 *
 * +:queued+ (in a pool, not started yet), +:running+ (it holds the processor), +:waiting+, +:completed+, +:failed+ or
 * +:cancelled+.
 */
static VALUE status(VALUE self)
{
    struct task *task = task_of(self);
    switch (task->status) {
    case TASK_COMPLETED:
        return ID2SYM(rb_intern("completed"));
    case TASK_FAILED:
        return ID2SYM(rb_intern("failed"));
    case TASK_CANCELLED:
        return ID2SYM(rb_intern("cancelled"));
    case TASK_QUEUED:
        return ID2SYM(rb_intern("queued"));
    case TASK_RUNNING:
        break;
    }
    bool runs = task->loop ? task->loop->task == task : task == task_current();
    return ID2SYM(rb_intern(runs ? "running" : "waiting"));
}

/*
 * call-seq: task.ended? -> true or false
 */
static VALUE ended_p(VALUE self)
{
    return task_of(self)->status <= TASK_RUNNING ? Qfalse : Qtrue;
}

/*
 * call-seq: task.name -> String or nil
 */
static VALUE name(VALUE self)
{
    return task_of(self)->name;
}

/*
 * call-seq: task.error -> Exception or nil
 *
 * What the task failed with, without raising it.
 */
static VALUE error(VALUE self)
{
    struct task *task = task_of(self);
    return task->status == TASK_FAILED ? task->result : Qnil;
}

/*
 * call-seq: task.started? -> true or false
 *
 * @api private Whether its block was called, or will be: false once it is known that nobody calls it.
 */
static VALUE started_p(VALUE self)
{
    const struct task *task = task_of(self);
    return task->started || task->posted ? Qtrue : Qfalse;
}

/*
 * call-seq: task.claimed? -> true or false
 *
 * Whether somebody asked for its value, so that Heddle.run need not raise its error.
 */
static VALUE claimed_p(VALUE self)
{
    return task_of(self)->claimed ? Qtrue : Qfalse;
}

static VALUE inspect(VALUE self)
{
    struct task *task = task_of(self);
    VALUE quoted = NIL_P(task->name) ? rb_str_new_cstr("") : rb_sprintf(" %+" PRIsVALUE, task->name);
    return rb_sprintf("#<%" PRIsVALUE ":%p%" PRIsVALUE " %" PRIsVALUE ">", rb_obj_class(self), (void *)self, quoted,
                      rb_sym2str(status(self)));
}

/*
 * call-seq: Heddle::Task.current -> Heddle::Task or nil
 *
 * The task whose code runs now: nil outside of any.
 */
static VALUE current(VALUE klass)
{
    (void)klass;
    struct task *task = task_current();
    return task ? task->self : Qnil;
}

/*
 * Document-class: Heddle::Task
 *
 * What Heddle.spawn and pools start: a block that runs beside others in one thread, on a fiber that it has for itself. Its methods
 * may be called from any thread.
 */
void Init_heddle_task(void)
{
    cTask = rb_define_class_under(heddle_module, "Task", rb_cObject);
    rb_gc_register_mark_object(cTask);
    rb_undef_alloc_func(cTask);
    rb_undef_method(CLASS_OF(cTask), "new");
    rb_define_singleton_method(cTask, "current", current, 0);
    rb_define_method(cTask, "value", value, 0);
    rb_define_method(cTask, "wait", wait_for_task, -1);
    rb_define_method(cTask, "cancel", cancel, 0);
    rb_define_method(cTask, "status", status, 0);
    rb_define_method(cTask, "ended?", ended_p, 0);
    rb_define_method(cTask, "name", name, 0);
    rb_define_method(cTask, "error", error, 0);
    rb_define_method(cTask, "started?", started_p, 0);
    rb_define_method(cTask, "claimed?", claimed_p, 0);
    rb_define_method(cTask, "inspect", inspect, 0);
    rb_define_alias(cTask, "to_s", "inspect");
    task_view_define(cTask);
    spawn_define(cTask);
}
