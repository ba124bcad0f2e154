#include "task/task_end.h"

#include "loop/interrupt.h"
#include "loop/park.h"
#include "loop/start.h"
#include "loop/wake.h"
#include "os/fork.h"
#include "protect.h"
#include "scope/other_scheduler_scope.h"
#include "task/current.h"
#include "task/join.h"
#include "task/run.h"
#include "task/task_loop.h"
#include "task/task_trace.h"

static ID id_full_message, id_message, id_backtrace, id_write, id_report_on_exception, id_highlight;

// ---- the lists that a task is in

static void run_add(VALUE object, struct task *task)
{
    struct run *run = run_of(object);
    if (NIL_P(run->main)) run->main = task->owner.self;
    task_list_add(&run->tasks, task);
}

// This and run_task_ended take the task from its run, however a scheduler that wakes the run's waiters fails. `state`
// as for protect_next.
static void run_remove(VALUE object, struct task *task, int *state)
{
    struct run *run = run_of(object);
    task_list_remove(&run->tasks, task);
    if (run->tasks.count == 0) join_wake_all(object, run->waiters, state);
}

static void unlist(struct task *task)
{
    if (!task->owner.listed) return;
    struct loop *loop = task->owner.loop;
    struct task_loop *tasks = task_loop_of(loop);
    task->owner.listed = false;
    if (task->owner.record) record_close(&task->owner);
    task_list_remove(&tasks->tasks, task);
    tasks->externals -= is_external(task);
    if (tasks->tasks.count == 0 && tasks->drain_fiber) loop_unblock(loop, tasks->drain_fiber);
}

void task_enlist(struct task *task, VALUE run)
{
    if (task->owner.loop) {
        struct task_loop *tasks = task_loop_of(task->owner.loop);
        task_list_add(&tasks->tasks, task);
        tasks->externals += is_external(task);
        task->owner.listed = true;
        if (task->owner.loop->measuring & MEASURE_RECORDS) task_record(task);
    }
    task->run = run;
    if (!NIL_P(run)) run_add(run, task);
}

void task_leave_run(struct task *task)
{
    VALUE run = task->run;
    if (NIL_P(run)) return;
    task->run = Qnil;
    int state = 0;
    run_remove(run, task, &state);
    if (state) rb_jump_tag(state);
}

// ---- errors

bool is_cancellation(VALUE error)
{
    return RTEST(rb_obj_is_kind_of(error, heddle_eCancellation));
}

bool is_fatal(VALUE error)
{
    return RTEST(rb_obj_is_kind_of(error, rb_eSystemExit)) || RTEST(rb_obj_is_kind_of(error, rb_eSignal)) ||
           RTEST(rb_obj_is_kind_of(error, rb_eNoMemError));
}

VALUE task_error(const struct task *task)
{
    return task->status >= TASK_FAILED && !is_cancellation(task->result) ? task->result : Qnil;
}

static bool ends_the_run(const struct run *run, const struct task *task)
{
    return task->owner.self == run->main || is_fatal(task->result);
}

// Returns whether the run itself will raise this task's error, so that the error need not be reported.
static bool run_raises_itself(VALUE object, const struct task *task)
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

static VALUE print_report(VALUE argument)
{
    struct task *task = (struct task *)argument;
    if (task_ended(task)) loop_yield(task->owner.loop); // its spawner may be about to ask for the value
    VALUE thread = rb_thread_current();
    if (task->claimed || !RTEST(rb_funcall(thread, id_report_on_exception, 0))) return Qnil;
    VALUE options = rb_hash_new();
    rb_hash_aset(options, ID2SYM(id_highlight), Qfalse);
    VALUE message = rb_funcallv_kw(task->result, id_full_message, 1, &options, RB_PASS_KEYWORDS);
    VALUE report = rb_sprintf("%" PRIsVALUE " ended with an exception that nobody waits for:\n%" PRIsVALUE,
                              task->owner.self, message);
    rb_funcall(rb_stderr, id_write, 1, report);
    return Qnil;
}

static void append_bytes(VALUE report, VALUE text)
{
    if (RB_TYPE_P(text, T_STRING)) rb_str_cat(report, RSTRING_PTR(text), RSTRING_LEN(text));
    RB_GC_GUARD(text);
}

static VALUE first_place(VALUE error)
{
    VALUE backtrace = rb_funcall(error, id_backtrace, 0);
    return RB_TYPE_P(backtrace, T_ARRAY) ? rb_ary_entry(backtrace, 0) : Qnil;
}

static VALUE message(VALUE error)
{
    return rb_funcall(error, id_message, 0);
}

static VALUE unknown(VALUE unused, VALUE error)
{
    (void)unused, (void)error;
    return Qnil;
}

// What is left if full_message fails: it joins a message and paths, which without a locale may have encodings that do
// not fit each other, and errors may have methods of their own, each of which may raise, too.
static VALUE print_bytes(VALUE argument)
{
    struct task *task = (struct task *)argument;
    VALUE report = rb_sprintf("%" PRIsVALUE " ended with an exception that nobody waits for:\n", task->owner.self);
    append_bytes(report, rb_rescue(first_place, task->result, unknown, Qnil));
    rb_str_cat_cstr(report, ": ");
    append_bytes(report, rb_class_name(rb_obj_class(task->result)));
    rb_str_cat_cstr(report, ": ");
    append_bytes(report, rb_rescue(message, task->result, unknown, Qnil));
    rb_str_cat_cstr(report, "\n");
    rb_funcall(rb_stderr, id_write, 1, report);
    return Qnil;
}

static bool awaited(const struct task *task)
{
    return task->claimed || join_awaited(task->waiters);
}

// Returns whether the error must be reported. The run raises at its end that of a task that failed, not that of a
// cancelled one: whoever waits for that without asking for its value sees nothing of it.
static bool unasked(const struct task *task, enum task_status status)
{
    if (status == TASK_CANCELLED) {
        if (NIL_P(task->result) || is_cancellation(task->result) || task->claimed) return false;
    } else if (status != TASK_FAILED || awaited(task) || is_fatal(task->result)) {
        return false;
    }
    return NIL_P(task->run) || !run_raises_itself(task->run, task);
}

// Returns whether the report can wait until other fibers had their turn: a task runs at once, and may fail before its
// spawner can ask for its value. The task's run, which does not end before that, makes the delay safe. A child of fork
// has no other fibers.
static bool can_wait(const struct task *task)
{
    return task->owner.loop && !NIL_P(task->run) && context_of_thread().loop == task->owner.loop;
}

// Like Thread#report_on_exception. An error while printing must not keep the task from ending. Whether it is one, or an
// interrupt of the same class, a second try tells. Returns the state of an interrupt or Thread#kill, for rb_jump_tag
// (which raises what is then $!), or 0.
static int report(struct task *task)
{
    int state = 0, again = 0;
    rb_protect(print_report, (VALUE)task, &state);
    VALUE error = rb_errinfo();
    if (!state || !is_exception(error)) return state;
    rb_set_errinfo(Qnil);
    if (is_cancellation(error)) return 0; // of the task, meanwhile
    if (!RTEST(rb_obj_is_kind_of(error, rb_eStandardError))) {
        rb_set_errinfo(error);
        return state;
    }
    rb_protect(print_report, (VALUE)task, &again);
    if (!again) {
        rb_set_errinfo(error);
        return state;
    }
    bool unprintable = is_exception(rb_errinfo()) && rb_obj_class(rb_errinfo()) == rb_obj_class(error);
    if (!unprintable) return again;
    rb_protect(print_bytes, (VALUE)task, &again);
    error = rb_errinfo();
    bool interrupted = again && !(is_exception(error) && RTEST(rb_obj_is_kind_of(error, rb_eStandardError)));
    if (interrupted && !is_cancellation(error)) return again;
    rb_set_errinfo(Qnil);
    return 0;
}

static VALUE report_late(VALUE task)
{
    int state = report((struct task *)task);
    if (state) rb_jump_tag(state);
    return Qnil;
}

// ---- the end

static VALUE cancel_others(VALUE object)
{
    cancel_all(task_list_objects(&run_of(object)->tasks), false);
    run_of(object)->cancelling.cancelled = true; // else the end of the run cancels them
    return Qnil;
}

static void run_task_ended(VALUE object, struct task *task, int *state)
{
    struct run *run = run_of(object);
    if (run->forks != fork_count()) return;
    if (task->status == TASK_FAILED) {
        if (!ends_the_run(run, task)) {
            keep_failure(run, task->owner.self);
        } else if (NIL_P(run->fatal)) {
            run->fatal = task->result;
            protect_next(cancel_others, object, state);
            join_wake_all(object, run->waiters, state);
        }
    }
    run_remove(object, task, state);
}

static void unindex(struct task *task)
{
    if (task->owner.loop && !NIL_P(task->owner.fiber))
        fiber_index_delete(&task->owner.loop->running, &task->owner.fiber);
}

// Outside of any run: closing the scheduler raises the first such error.
static void end_scheduler(struct task_loop *tasks, VALUE error)
{
    if (!NIL_P(tasks->fatal)) return;
    tasks->fatal = error;
    if (tasks->drain_fiber) loop_unblock(&tasks->loop, tasks->drain_fiber);
}

// Each step is made, whatever is raised in another: a task half ended would keep its run waiting for ever.
void task_end(struct task *task, enum task_status status, VALUE result)
{
    task->result = result;
    scope_close_all(&task->scopes);
    task->owner.cancel_pending = false;
    bool reported = unasked(task, status), later = reported && can_wait(task);
    int state = reported && !later ? report(task) : 0;
    task_become(task, status);
    if (task->owner.loop) task->owner.loop->statistics.ended[status - TASK_COMPLETED]++;
    if (task->owner.loop && task->owner.loop->trace) task_trace_end(task);
    task->block = Qnil;
    task->storage = Qnil;
    unlist(task);
    join_wake_all(task->owner.self, task->waiters, &state);
    if (later) protect_next(report_late, (VALUE)task, &state); // the run does not end before that
    if (!NIL_P(task->run)) {
        run_task_ended(task->run, task, &state);
    } else if (task->owner.loop && status == TASK_FAILED && is_fatal(result)) {
        end_scheduler(task_loop_of(task->owner.loop), result);
    }
    unindex(task);
    task->owner.fiber = Qnil;
    if (state) rb_jump_tag(state);
}

void task_failed_outside(struct task *task, VALUE error)
{
    struct loop *loop = task->owner.loop;
    if (loop->fork_count != fork_count() || !loop->root->wait) { // in a child of fork, which ends by the error
        task_end(task, TASK_FAILED, error);
        return;
    }
    task_fiber_ended(task);
    loop_raise_at_root(loop, error);
}

void task_fiber_ended(struct task *task)
{
    VALUE object = task->owner.self;
    if (task_runs(task)) task_end(task, task->status == TASK_CANCELLING ? TASK_CANCELLED : TASK_COMPLETED, Qnil);
    RB_GC_GUARD(object);
}

// ---- cancels

static unsigned long withdrawals;

unsigned long task_withdrawals(void)
{
    return withdrawals;
}

// Under another scheduler, see other_scheduler_interrupt.
static void other_scheduler_cancel(struct task *task)
{
    VALUE error = task->owner.interruption;
    task->owner.interruption = Qnil;
    if (NIL_P(error)) error = owner_cancellation(&task->owner);
    task->owner.cancel_pending = false;
    if (task == task_current()) rb_exc_raise(error);
    other_scheduler_interrupt(task->scheduler, task->owner.fiber, error);
}

static void raise_soon(struct task *task)
{
    task->owner.cancel_pending = true;
    if (!task->owner.loop) {
        other_scheduler_cancel(task);
    } else if (task == task_current()) {
        owner_raise_pending(&task->owner);
    } else if (owner_pending(&task->owner)) { // not behind a shield, where the wait goes on
        loop_interrupt_owner(task->owner.loop, &task->owner);
    }
}

void task_cancel(struct task *task, bool again)
{
    if (task->status == TASK_QUEUED) {
        withdrawals++;
        task_end(task, TASK_WITHDRAWN, Qnil);
        return;
    }
    if (task->status != TASK_RUNNING && !(task->status == TASK_CANCELLING && again)) return;
    task_become(task, TASK_CANCELLING);
    task->owner.interruption = Qnil;
    task->owner.cleans_up = true;
    raise_soon(task);
}

void task_interrupt(struct task *task, VALUE exception)
{
    if (!task_runs(task)) {
        task_cancel(task, false);
        return;
    }
    if (is_external(task) || task->owner.cancel_pending) return;
    task->owner.interruption = exception;
    raise_soon(task);
}

void task_withdraw(struct task *task, VALUE exception)
{
    if (task->owner.interruption != exception) return;
    task->owner.interruption = Qnil;
    task->owner.cancel_pending = false;
}

static void kill_task(struct task *task)
{
    if (task->owner.killed || !task_runs(task)) return;
    task_become(task, TASK_CANCELLING);
    task->owner.killed = task->owner.cleans_up = task->owner.cancel_pending = true;
    if (!is_external(task)) task->owner.interruption = Qnil; // whoever takes that back does not take back the kill
    if (task->owner.loop->owner == &task->owner) {
        owner_raise_pending(&task->owner);
    } else {
        loop_interrupt_owner_now(task->owner.loop, &task->owner);
    }
}

bool task_kill(struct loop *loop, VALUE fiber)
{
    struct wait_owner *owner = fiber_index_owner(&loop->running, fiber);
    if (!owner) return loop_keeps_idle(loop, fiber); // an idle worker fiber's task has ended already
    kill_task(task_of_owner(owner));
    return true;
}

void cancel_all(VALUE tasks, bool again)
{
    struct task *current = task_current();
    for (long i = 0; i < RARRAY_LEN(tasks); i++) {
        struct task *task = task_of(RARRAY_AREF(tasks, i));
        if (task != current) task_cancel(task, again);
    }
}

// ---- giving up

// Tasks that were given up, and their fibers. Such a fiber may stand in Ruby's list of those who wait for a
// Queue or a Mutex, by an entry on its stack: were the fiber collected, Ruby would read freed memory.
static VALUE given_up;

static void keep_for_ever(const struct task *task)
{
    if (NIL_P(task->owner.fiber)) return;
    if (!given_up) rb_gc_register_mark_object(given_up = rb_ary_new());
    rb_ary_push(given_up, rb_assoc_new(task->owner.self, task->owner.fiber));
}

VALUE tasks_given_up(VALUE scheduler)
{
    VALUE tasks = rb_ary_new();
    for (long i = 0; given_up && i < RARRAY_LEN(given_up); i++) {
        VALUE task = rb_ary_entry(RARRAY_AREF(given_up, i), 0);
        if (task_of(task)->scheduler == scheduler) rb_ary_push(tasks, task);
    }
    return tasks;
}

static void give_up(struct task *task)
{
    unindex(task); // once collected, it can no longer do that
    unlist(task);
    task_leave_run(task);
}

void task_abandon(struct task *task)
{
    keep_for_ever(task);
    give_up(task);
}

void Init_heddle_task_end(void)
{
    id_full_message = rb_intern("full_message");
    id_message = rb_intern("message");
    id_backtrace = rb_intern("backtrace");
    id_write = rb_intern("write");
    id_report_on_exception = rb_intern("report_on_exception");
    id_highlight = rb_intern("highlight");
}
