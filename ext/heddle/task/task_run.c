#include "task/task_run.h"

#include "loop/loop.h"
#include "scope/foreign_scope.h"
#include "shims.h"
#include "task/bindings.h"
#include "task/current.h"
#include "task/guest.h"
#include "task/join.h"
#include "task/run.h"
#include "task/task_loop.h"

static ID id_cause, id_full_message, id_write, id_report_on_exception, id_highlight, id_call, id_start;

// ---- running

static VALUE call_proc(VALUE block)
{
    return rb_proc_call_with_block(block, 0, NULL, Qnil);
}

static VALUE call_block(VALUE argument)
{
    struct task *task = (struct task *)argument;
    if (task->owner.loop) fiber_index_add(&task->owner.loop->running, &task->owner.fiber); // or the task fails
    struct scope *inherited = task->scopes.innermost;
    if (inherited && !task->owner.loop) foreign_watch(inherited);
    return inherited && !is_guest(task) ? scope_call(inherited, call_proc, task->block) : call_proc(task->block);
}

// A kill that came while the block ran, and continues to the end of the fiber.
struct death {
    struct task *task;
    int state;
};

static VALUE die(VALUE argument)
{
    rb_jump_tag(((struct death *)argument)->state);
}

// Gives a pool back the place of its killed task, which would otherwise be lost.
static VALUE hand_on(VALUE argument)
{
    struct task *task = ((struct death *)argument)->task;
    if (task->owner.loop) task_loop_between_tasks(task->owner.loop);
    VALUE next = task_successor(task);
    while (!NIL_P(next) && task_of(next)->status != TASK_QUEUED)
        next = task_successor(task_of(next)); // was cancelled meanwhile
    if (!NIL_P(next)) rb_funcall(next, id_start, 0);
    return Qnil;
}

static bool is_cancellation(VALUE error)
{
    return RTEST(rb_obj_is_kind_of(error, heddle_eCancellation));
}

// Libraries turn every exception of a wait into one of their own, whose cause it then is.
static bool comes_of_a_cancellation(VALUE error)
{
    for (; RTEST(rb_obj_is_kind_of(error, rb_eException)); error = rb_attr_get(error, id_cause)) {
        if (is_cancellation(error)) return true;
    }
    return false;
}

// One rb_protect, although a rescue inside an ensure would read better: this function's frames lie below everything
// that a task does, and each page of a waiting fiber's stack counts.
void task_run(struct task *task)
{
    VALUE self = task->owner.self;
    int state = 0;
    task->owner.fiber = rb_fiber_current();
    task_become(task, TASK_RUNNING);
    VALUE result = rb_protect(call_block, (VALUE)task, &state);
    if (!state) {
        task_end(task, task->status == TASK_CANCELLING && is_guest(task) ? TASK_CANCELLED : TASK_COMPLETED, result);
    } else if (is_exception(rb_errinfo())) {
        VALUE error = rb_errinfo();
        rb_set_errinfo(Qnil);
        if (is_guest(task) || task->pushed) {
            guest_failed(task, error);
            return;
        }
        bool cancelled = task->status == TASK_CANCELLING && !is_fatal(error) && comes_of_a_cancellation(error);
        task_end(task, cancelled ? TASK_CANCELLED : TASK_FAILED, error);
    } else { // a kill or a throw ends the fiber
        struct death death = {.task = task, .state = state};
        task_end(task, TASK_CANCELLED, Qnil);
        rb_ensure(die, (VALUE)&death, hand_on, (VALUE)&death);
    }
    RB_GC_GUARD(self);
}

VALUE task_successor(struct task *task)
{
    return NIL_P(task->on_end) ? Qnil : rb_funcall(task->on_end, id_call, 1, task->owner.self);
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

void task_raise_cancelled(const struct task *task, VALUE message)
{
    raise_with_cause(rb_exc_new_str(heddle_eTaskCancelled, message), task_error(task));
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
    return task->owner.loop && !NIL_P(task->run) && place_of_thread().loop == task->owner.loop;
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
    bool prints_nothing = again && is_exception(rb_errinfo()) && rb_obj_class(rb_errinfo()) == rb_obj_class(error);
    if (again && !prints_nothing) return again;
    rb_set_errinfo(again ? Qnil : error);
    return again ? 0 : state;
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

static void keep_state(int *kept, int state)
{
    if (state) *kept = state;
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
    task->block = Qnil;
    task->storage = Qnil;
    task_unlist(task);
    keep_state(&state, join_wake_all(task->owner.self, task->waiters));
    if (later) keep_state(&state, report(task)); // the run does not end before that
    if (!NIL_P(task->run)) {
        keep_state(&state, run_task_ended(task->run, task));
    } else if (task->owner.loop && status == TASK_FAILED && is_fatal(result)) {
        end_scheduler(task_loop_of(task->owner.loop), result);
    }
    unindex(task);
    task->owner.fiber = Qnil;
    if (state) rb_jump_tag(state);
}

void task_give_up(struct task *task)
{
    unindex(task); // once collected, it can no longer do that
    task_unlist(task);
    int state = NIL_P(task->run) ? 0 : run_remove(task->run, task);
    task->run = Qnil;
    if (state) rb_jump_tag(state);
}

void Init_heddle_task_run(void)
{
    id_cause = rb_intern("cause"); // without an @, which hides the variable
    id_full_message = rb_intern("full_message");
    id_write = rb_intern("write");
    id_report_on_exception = rb_intern("report_on_exception");
    id_highlight = rb_intern("highlight");
    id_call = rb_intern("call");
    id_start = rb_intern("start");
}
