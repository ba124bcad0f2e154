// Task#waits_for, #waits_since, #remaining and #backtrace: what a task is doing.
#include "scheduler/bindings.h"

#include "loop/loop.h"
#include "os/peer.h"
#include "scope/scope.h"
#include "task/current.h"

static ID id_backtrace;

static const struct loop_wait *waiting(VALUE self)
{
    const struct task *task = task_of(self);
    return task->owner.wait && task->owner.wait->state != WAIT_RUNNING ? task->owner.wait : NULL;
}

/*
 * call-seq: task.waits_for -> String or nil
 *
 * Describes what the task waits for now, with the peer of a socket; nil if it runs, has ended, or runs under another
 * scheduler.
 */
static VALUE waits_for(VALUE self)
{
    const struct loop_wait *wait = waiting(self);
    if (!wait) return Qnil;
    if (wait->state != WAIT_READY && wait->kind == WAIT_BLOCK && wait->blocker && !SPECIAL_CONST_P(wait->blocker))
        return rb_sprintf("a %" PRIsVALUE, rb_obj_class(wait->blocker));
    char words[WAIT_WORDS], peer[PEER_NAME] = "";
    enum wait_kind kind = wait->state == WAIT_READY ? WAIT_YIELD : wait->kind;
    if (kind == WAIT_DESCRIPTOR) peer_text(wait->descriptor, peer);
    wait_words(words, kind, wait->descriptor, wait->events, peer);
    return rb_utf8_str_new_cstr(words);
}

/*
 * call-seq: task.number -> Integer
 *
 * A number that no other task of this process has, as #inspect, +heddle ps+ and Heddle.dump show it.
 */
static VALUE number(VALUE self)
{
    return ULL2NUM(task_of(self)->owner.number);
}

/*
 * call-seq: task.parent_number -> Integer
 *
 * The number of the task that started this one; 0 if code outside of any task did.
 */
static VALUE parent_number(VALUE self)
{
    return ULL2NUM(task_of(self)->owner.parent);
}

/*
 * call-seq: task.blocker -> object or nil
 *
 * The object that the task waits for: a Mutex, a Queue, a task, a pool. nil if that is not known, or if the task waits
 * for something else.
 *
 * @api private
 */
static VALUE blocker(VALUE self)
{
    const struct loop_wait *wait = waiting(self);
    if (!wait || wait->state == WAIT_READY || wait->kind != WAIT_BLOCK || !wait->blocker) return Qnil;
    return wait->blocker;
}

/*
 * call-seq: task.waits_since -> Float or nil
 *
 * How many seconds the task has been waiting, accurate to about a millisecond.
 */
static VALUE waits_since(VALUE self)
{
    const struct loop_wait *wait = waiting(self);
    return wait ? DBL2NUM((double)(deadline_now() - wait->since) / 1e9) : Qnil;
}

/*
 * call-seq: task.remaining -> Float or nil
 *
 * The seconds left until the task's deadline: 0.0 after it has passed, nil without one.
 */
static VALUE remaining(VALUE self)
{
    const struct task *task = task_of(self);
    return deadline_left(task->owner.chain ? scope_in_force(task->owner.chain) : DEADLINE_NEVER);
}

/*
 * call-seq: task.backtrace -> [String, ...] or nil
 *
 * The backtrace of the task's waiting fiber, which may be one that the task resumed. nil for a task that has ended.
 */
static VALUE backtrace(VALUE self)
{
    const struct task *task = task_of(self);
    VALUE fiber = task->owner.wait ? task->owner.wait->fiber : task->owner.fiber;
    return NIL_P(fiber) || !fiber ? Qnil : rb_funcall(fiber, id_backtrace, 0);
}

void task_view_define(VALUE task_class)
{
    id_backtrace = rb_intern("backtrace");
    rb_define_method(task_class, "waits_for", waits_for, 0);
    rb_define_method(task_class, "number", number, 0);
    rb_define_method(task_class, "parent_number", parent_number, 0);
    rb_define_method(task_class, "blocker", blocker, 0);
    rb_define_method(task_class, "waits_since", waits_since, 0);
    rb_define_method(task_class, "remaining", remaining, 0);
    rb_define_method(task_class, "backtrace", backtrace, 0);
}
