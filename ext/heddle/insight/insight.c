// Heddle::Insight: switches records and the server on and off, and tells Ruby code what the records have.
#include "insight/insight.h"

#include "loop/context.h"
#include "loop/loop.h"
#include "loop/all_loops.h"
#include "loop/measuring.h"
#include "os/fork.h"
#include "os/main_ractor.h"
#include "resolver/resolver.h"
#include "task/task_loop.h"

static void record_all(bool on)
{
    for (struct loop *loop = loops_first(); loop; loop = loop->next_live) {
        if (on) record_loop_open(loop);
        for (struct task *task = task_loop_of(loop)->tasks.head; task; task = task->in[LIST_OF_LOOP].next) {
            if (!on) {
                record_close(&task->owner);
                continue;
            }
            task_record(task);
            if (!task->owner.record) continue;
            if (task->owner.wait) record_park(task->owner.wait);
        }
        if (!on) record_loop_close(loop);
    }
}

/*
 * call-seq: Heddle::Insight.record = true or false
 *
 * Whether all loops keep records of their tasks.
 *
 * @api private
 */
static VALUE set_record(VALUE self, VALUE on)
{
    (void)self;
    bool records = RTEST(on);
    if (records) all_loops_measure(MEASURE_RECORDS, true); // before the records are written: it may raise
    record_all(records);
    if (!records) all_loops_measure(MEASURE_RECORDS, false);
    return on;
}

/*
 * call-seq: Heddle::Insight.listen(path, head) -> nil
 *
 * Listens at the path with a native thread. +head+: the line with which each answer begins.
 *
 * Raises SystemCallError.
 *
 * @api private
 */
static VALUE insight_listen(VALUE self, VALUE path, VALUE head)
{
    (void)self;
    int error = server_start(StringValueCStr(path), StringValueCStr(head));
    if (error) rb_syserr_fail_str(error, path);
    return Qnil;
}

/* @api private Heddle::Insight.listens? -> true or false */
static VALUE listens_p(VALUE self)
{
    (void)self;
    return server_runs() ? Qtrue : Qfalse;
}

/* @api private Heddle::Insight.stop_listening -> nil: waits for the end of the native thread */
static VALUE stop_listening(VALUE self)
{
    (void)self;
    server_stop();
    return Qnil;
}

/* @api private Heddle::Insight.loop_number(scheduler) -> Integer: as in the lines of an answer */
static VALUE loop_number(VALUE self, VALUE scheduler)
{
    (void)self;
    struct loop *loop = loop_of(scheduler);
    return ULL2NUM(loop ? record_loop_number(loop) : 0);
}

/*
 * call-seq: Heddle::Insight.measured(task) -> [Float, Float, Integer] or nil
 *
 * For how many seconds the task ran, and was ready without running, up to its last wait; and how often it ran. nil
 * without a record.
 *
 * @api private
 */
static VALUE measured(VALUE self, VALUE object)
{
    (void)self;
    struct task_row row;
    if (!record_of(&task_of(object)->owner, &row)) return Qnil;
    return rb_ary_new_from_args(3, DBL2NUM((double)row.ran / 1e9), DBL2NUM((double)row.was_ready / 1e9),
                                ULL2NUM(row.turns));
}

/*
 * call-seq: Heddle::Insight.running(scheduler) -> Task or nil
 *
 * The task that runs now, or whose fiber polls.
 *
 * @api private
 */
static VALUE running(VALUE self, VALUE scheduler)
{
    (void)self;
    const struct loop *loop = loop_of(scheduler);
    return loop && loop->owner->self ? loop->owner->self : Qnil;
}

/*
 * call-seq: Heddle::Insight.names_in_flight -> [Integer, [String, ...]]
 *
 * How many look-ups of names have no answer yet, and the names of some of them.
 *
 * @api private
 */
static VALUE names_in_flight(VALUE self)
{
    (void)self;
    enum { MOST = 16 };
    char names[MOST][RESOLVER_SHOWN];
    size_t count = resolver_in_flight(names, MOST);
    VALUE some = rb_ary_new();
    for (size_t i = 0; i < count && i < MOST; i++)
        rb_ary_push(some, rb_utf8_str_new_cstr(names[i]));
    return rb_assoc_new(SIZET2NUM(count), some);
}

void Init_heddle_insight(void)
{
    VALUE insight = rb_define_module_under(heddle_module, "Insight");
    rb_define_singleton_method(insight, "record=", set_record, 1);
    rb_define_singleton_method(insight, "listen", insight_listen, 2);
    rb_define_singleton_method(insight, "listens?", listens_p, 0);
    rb_define_singleton_method(insight, "stop_listening", stop_listening, 0);
    rb_define_singleton_method(insight, "loop_number", loop_number, 1);
    rb_define_singleton_method(insight, "measured", measured, 1);
    rb_define_singleton_method(insight, "running", running, 1);
    rb_define_singleton_method(insight, "names_in_flight", names_in_flight, 0);
    helper_define(insight);
}
