// What thousands of tasks wait for, without an object of Ruby's for each: a GC in the middle of a report would stop all
// loops for longer than the report does.
#include "insight/insight.h"

#include "loop/loop.h"
#include "task/task.h"

#include <string.h>

enum { STEPS = 32 };                  // tasks between two looks at the clock
static const int64_t SLICE = 1000000; // nanoseconds

static struct text lines;

struct text *details_lines(void)
{
    return &lines;
}

// The object that the task waits for, or 0.
static VALUE blocker_of(const struct task *task)
{
    const struct loop_wait *wait = task->owner.wait;
    return wait && wait->state == WAIT_PARKED && wait->kind == WAIT_BLOCK && wait->blocker &&
                   !SPECIAL_CONST_P(wait->blocker)
               ? wait->blocker
               : 0;
}

static void begin(const struct task *task)
{
    text_format(&lines, "{\"detail\":%llu", (unsigned long long)task->owner.number);
}

static void add_join(const struct task *task, const struct task *awaited)
{
    struct text words = {0};
    begin(task);
    text_format(&lines, ",\"awaits\":[%llu],\"waits_for\":", (unsigned long long)awaited->owner.number);
    text_format(&words, "the end of task %llu", (unsigned long long)awaited->owner.number);
    if (RB_TYPE_P(awaited->name, T_STRING)) {
        text_add(&words, " \"", 2);
        text_add(&words, RSTRING_PTR(awaited->name), (size_t)RSTRING_LEN(awaited->name));
        text_add(&words, "\"", 1);
    }
    text_string(&lines, words.bytes, words.length);
    text_add(&lines, "}\n", 2);
    text_free(&words);
}

static void add_object(const struct task *task, VALUE object, VALUE fragments)
{
    VALUE klass = rb_obj_class(object);
    VALUE fragment = rb_hash_lookup(fragments, klass);
    if (NIL_P(fragment)) rb_hash_aset(fragments, klass, fragment = rb_yield_values(2, klass, Qnil));
    if (fragment == Qtrue) { // each object of this class has a description of its own
        fragment = rb_hash_lookup(fragments, object);
        if (NIL_P(fragment)) rb_hash_aset(fragments, object, fragment = rb_yield_values(2, klass, object));
    }
    if (!RB_TYPE_P(fragment, T_STRING)) return;
    begin(task);
    text_add(&lines, ",", 1);
    text_add(&lines, RSTRING_PTR(fragment), (size_t)RSTRING_LEN(fragment));
    text_add(&lines, "}\n", 2);
    RB_GC_GUARD(fragment);
}

/*
 * call-seq: Heddle::Insight.add_details(tasks, from, fragments) { |class, object| ... } -> Integer
 *
 * Adds a line for each of the tasks, from that index on, which waits for an object, until a slice of time is over.
 * Returns the next index. +fragments+ is a Hash by identity. Yields each class once: the block returns JSON for all of
 * its objects, or true, and then it is called for each object as well.
 *
 * @api private
 */
static VALUE add_details(VALUE self, VALUE tasks, VALUE from, VALUE fragments)
{
    (void)self;
    Check_Type(tasks, T_ARRAY);
    Check_Type(fragments, T_HASH);
    deadline_t until = deadline_in(SLICE);
    long index = NUM2LONG(from);
    for (long steps = 0; index < RARRAY_LEN(tasks); index++, steps++) {
        if (steps && steps % STEPS == 0 && deadline_now() >= until) break;
        const struct task *task = task_of(RARRAY_AREF(tasks, index));
        VALUE object = task_runs(task) ? blocker_of(task) : 0;
        if (!object) continue;
        if (RTEST(rb_obj_is_kind_of(object, heddle_cTask))) {
            add_join(task, task_of(object));
        } else {
            add_object(task, object, fragments);
        }
        RB_GC_GUARD(object);
    }
    return LONG2NUM(index);
}

/*
 * call-seq: Heddle::Insight.add(line) -> nil
 *
 * Adds a line to the answer, with its end.
 *
 * @api private
 */
static VALUE insight_add(VALUE self, VALUE line)
{
    (void)self;
    Check_Type(line, T_STRING);
    text_add(&lines, RSTRING_PTR(line), (size_t)RSTRING_LEN(line));
    text_add(&lines, "\n", 1);
    RB_GC_GUARD(line);
    return Qnil;
}

void details_define(VALUE module)
{
    rb_define_singleton_method(module, "add_details", add_details, 3);
    rb_define_singleton_method(module, "add", insight_add, 1);
}
