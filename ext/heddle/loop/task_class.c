#include "loop/task_class.h"

#include "loop/cancel.h"
#include "loop/foreign.h"
#include "loop/join.h"
#include "loop/run.h"
#include "loop/scheduler.h"
#include "loop/task_view.h"
#include "loop/worker.h"
#include "shims.h"

static VALUE cTask;
static ID id_full_message, id_write, id_report_on_exception, id_highlight, id_call;

// ---- the object

static void mark(void *pointer)
{
    task_mark(pointer);
}

static void release(void *pointer)
{
    xfree(pointer);
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

VALUE task_create(VALUE block, VALUE name, VALUE scheduler, struct loop *loop, VALUE run)
{
    struct task *task;
    VALUE self = TypedData_Make_Struct(cTask, struct task, &task_type, task);
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
    inherit_deadline(task);
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

static void unlist(struct task *task)
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
    unlist(task);
    if (!NIL_P(task->run)) run_remove(task->run, task);
}

struct task *task_current(void)
{
    struct loop *loop = scheduler_loop(rb_fiber_scheduler_get());
    if (!loop) return foreign_current_task();
    return loop->task->self ? loop->task : NULL;
}

// ---- running and ending

static VALUE call_proc(VALUE block)
{
    return rb_proc_call_with_block(block, 0, NULL, Qnil);
}

static VALUE call_block(VALUE argument)
{
    struct task *task = (struct task *)argument;
    struct scope *inherited = task->scopes.innermost;
    return inherited ? scope_call(inherited, &task->scopes, call_proc, task->block) : call_proc(task->block);
}

// What ended the block is an exception; or what no rescue stops: Thread#kill, which Ruby keeps there as something else.
static bool is_exception(VALUE error)
{
    return !RB_SPECIAL_CONST_P(error) && RB_BUILTIN_TYPE(error) != T_IMEMO &&
           RTEST(rb_obj_is_kind_of(error, rb_eException));
}

// One rb_protect, where a rescue inside of an ensure would read better: the frames of this function lie beneath all that a
// task does, and each page of a waiting fiber's stack counts.
void task_run(struct task *task)
{
    VALUE self = task->self;
    int state = 0;
    task->fiber = rb_fiber_current();
    task->status = TASK_RUNNING;
    task->started = true;
    VALUE result = rb_protect(call_block, (VALUE)task, &state);
    if (!state) {
        task_end(task, TASK_COMPLETED, result);
    } else if (is_exception(rb_errinfo())) {
        VALUE error = rb_errinfo();
        rb_set_errinfo(Qnil);
        bool cancelled = task->cancel_asked && RTEST(rb_obj_is_kind_of(error, heddle_eCancellation));
        task_end(task, cancelled ? TASK_CANCELLED : TASK_FAILED, error);
    } else { // it did not end by itself
        task_end(task, TASK_CANCELLED, Qnil);
        rb_jump_tag(state);
    }
    RB_GC_GUARD(self);
}

VALUE task_successor(struct task *task)
{
    return NIL_P(task->on_end) ? Qnil : rb_funcall(task->on_end, id_call, 1, task->self);
}

bool is_fatal(VALUE error)
{
    return RTEST(rb_obj_is_kind_of(error, rb_eSystemExit)) || RTEST(rb_obj_is_kind_of(error, rb_eSignal)) ||
           RTEST(rb_obj_is_kind_of(error, rb_eNoMemError));
}

static VALUE print_report(VALUE argument)
{
    struct task *task = (struct task *)argument;
    VALUE thread = rb_thread_current();
    if (!RTEST(rb_funcall(thread, id_report_on_exception, 0))) return Qnil;
    VALUE options = rb_hash_new();
    rb_hash_aset(options, ID2SYM(id_highlight), Qfalse);
    VALUE message = rb_funcallv_kw(task->result, id_full_message, 1, &options, RB_PASS_KEYWORDS);
    VALUE report =
        rb_sprintf("%" PRIsVALUE " ended with an exception that nobody waits for:\n%" PRIsVALUE, task->self, message);
    rb_funcall(rb_stderr, id_write, 1, report);
    return Qnil;
}

static bool awaited(const struct task *task)
{
    return task->claimed || (!NIL_P(task->waiters) && RARRAY_LEN(task->waiters) > 0);
}

// As Thread#report_on_exception. Whatever goes wrong in printing must not keep the task from ending. Returns the state of
// an interrupt or Thread#kill that came meanwhile, to be passed on with rb_jump_tag, or 0.
static int report(struct task *task)
{
    if (awaited(task) || is_fatal(task->result)) return 0;
    if (!NIL_P(task->run) && run_raises_itself(task->run, task)) return 0;
    int state = 0;
    rb_protect(print_report, (VALUE)task, &state);
    if (!state || !RTEST(rb_obj_is_kind_of(rb_errinfo(), rb_eStandardError))) return state;
    rb_set_errinfo(Qnil);
    return 0;
}

void task_end(struct task *task, enum task_status status, VALUE result)
{
    HEDDLE_ASSERT(task->status <= TASK_RUNNING);
    task->result = result;
    scope_close_all(&task->scopes);
    task->cancel_pending = false;
    int state = status == TASK_FAILED ? report(task) : 0;
    task->status = status;
    task->block = Qnil;
    task->storage = Qnil;
    unlist(task);
    join_wake(task->self, task->waiters);
    if (!NIL_P(task->run)) {
        run_task_ended(task->run, task);
    } else if (task->loop && status == TASK_FAILED && NIL_P(task->loop->fatal) && is_fatal(result)) {
        task->loop->fatal = result;
    }
    task->fiber = Qnil;
    if (state) rb_jump_tag(state);
}

void task_give_up(struct task *task)
{
    unlist(task);
    if (!NIL_P(task->run)) run_remove(task->run, task);
    task->run = Qnil;
}

// ---- spawning

static ID keyword_ids[1];

static void start(struct task *task)
{
    if (task->loop) {
        worker_start(task->loop, task, false, Qnil);
    } else {
        foreign_start(task);
    }
}

/*
 * call-seq: Heddle::Task.prepare(scheduler, name, on_end, claimed) { ... } -> Heddle::Task
 *
 * @api private For pools: a task that waits for its start. +on_end+ is called with it, on its fiber, once it has ended,
 * and may return another prepared task, which follows on the same fiber. +claimed+: somebody will ask for its value.
 */
static VALUE prepare(VALUE klass, VALUE scheduler, VALUE name, VALUE on_end, VALUE claimed)
{
    (void)klass;
    struct task *parent = task_current();
    struct task *task =
        task_of(task_create(rb_block_proc(), name, scheduler, scheduler_loop(scheduler), parent ? parent->run : Qnil));
    task->on_end = on_end;
    task->claimed = RTEST(claimed);
    task->storage = fiber_storage(); // it may be started from another fiber than its spawner's
    return task->self;
}

/*
 * call-seq: task.start -> task
 *
 * @api private Starts a prepared task. On the scheduler's own thread at once; from another one, when its loop runs next.
 */
static VALUE start_prepared(VALUE self)
{
    struct task *task = task_of(self);
    if (task->status != TASK_QUEUED) rb_raise(rb_eArgError, "%" PRIsVALUE " has been started", self);
    struct loop *loop = task->loop;
    if (loop && loop->closed)
        rb_raise(heddle_eSchedulerClosed, "the loop that was to run %" PRIsVALUE " has ended", self);
    if (loop && loop->thread && loop->thread != rb_thread_current()) {
        task->posted = true;
        loop_post(loop, self);
        return self;
    }
    if (loop) loop_enter(loop);
    start(task);
    return self;
}

/*
 * call-seq: Heddle.spawn(name: nil) { ... } -> Heddle::Task
 *
 * Starts the block as a task of the running scheduler and of the innermost Heddle.run. The block runs at once, until it
 * first has to wait; then the caller goes on. The fiber may have run other tasks before: it starts with no fiber-locals
 * and no instance variables, and with a copy of the caller's Fiber storage (Ruby >= 3.2), as a fresh one would.
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
    struct loop *loop = scheduler_loop(scheduler);
    if (loop) {
        loop_enter(loop);
        task_raise_pending(loop->task);
    }
    if (run == Qundef) {
        struct task *parent = task_current();
        run = parent ? parent->run : Qnil;
    }
    VALUE object = task_create(block, name, scheduler, loop, run);
    start(task_of(object));
    return object;
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
    struct ending ending = {.task = task, .deadline = deadline};
    // The loop of a pool of its own runs on this thread, or nowhere.
    if (task->status <= TASK_RUNNING && task->loop && !task->loop->closed &&
        task->loop->thread == rb_thread_current() && NIL_P(rb_fiber_scheduler_get())) {
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
static VALUE wait(int argc, VALUE *argv, VALUE self)
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

void Init_heddle_task(void)
{
    id_full_message = rb_intern("full_message");
    id_write = rb_intern("write");
    id_report_on_exception = rb_intern("report_on_exception");
    id_highlight = rb_intern("highlight");
    id_call = rb_intern("call");
    keyword_ids[0] = rb_intern("name");

    cTask = rb_define_class_under(heddle_module, "Task", rb_cObject);
    rb_gc_register_mark_object(cTask);
    rb_undef_alloc_func(cTask);
    rb_undef_method(CLASS_OF(cTask), "new");
    rb_define_singleton_method(cTask, "current", current, 0);
    rb_define_singleton_method(cTask, "prepare", prepare, 4);
    rb_define_method(cTask, "start", start_prepared, 0);
    rb_define_method(cTask, "value", value, 0);
    rb_define_method(cTask, "wait", wait, -1);
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
    rb_define_singleton_method(heddle_module, "spawn", spawn, -1);
}
