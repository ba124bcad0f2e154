// Scheduler#statistics: a loop's counters.
#include "scheduler/bindings.h"

#include "loop/loop.h"
#include "task/task_loop.h"

static void statistics_put(VALUE hash, const char *key, uint64_t value)
{
    rb_hash_aset(hash, ID2SYM(rb_intern(key)), ULL2NUM(value));
}

/*
 * call-seq: scheduler.statistics -> Hash
 *
 * Counters since the start, as Integers: +switches+ between fibers; +polls+ of the kernel, of which +empty_polls+ found
 * nothing and +sleeps+ were allowed to wait; +system_calls+ made to wait and to move bytes (not Ruby's own); +waits+, a
 * Hash of how often fibers parked, by kind; +spawned+ tasks, of which +reused+ ran on a fiber that had run another task
 * before; +retired+ fibers. Current values: +tasks+ that have not ended, +idle+ fibers, +timers+. +longest_run+, a
 * Float: the most seconds that a fiber ran without parking; 0.0 unless #measure_runs= is on.
 */
static VALUE scheduler_statistics(VALUE self)
{
    struct loop *loop = loop_of(self);
    const struct loop_statistics *counted = &loop->statistics;
    VALUE hash = rb_hash_new(), waits = rb_hash_new();
    statistics_put(hash, "switches", counted->switches);
    statistics_put(hash, "polls", counted->polls);
    statistics_put(hash, "empty_polls", counted->empty_polls);
    statistics_put(hash, "sleeps", counted->sleeps);
    statistics_put(hash, "system_calls", counted->system_calls + loop->poller.system_calls);
    for (int kind = 0; kind < WAIT_KINDS; kind++) {
        if (wait_kind_names[kind]) statistics_put(waits, wait_kind_names[kind], counted->waits[kind]);
    }
    rb_hash_aset(hash, ID2SYM(rb_intern("waits")), waits);
    statistics_put(hash, "spawned", counted->spawned);
    statistics_put(hash, "reused", counted->reused);
    statistics_put(hash, "retired", counted->retired);
    statistics_put(hash, "tasks", task_loop_of(loop)->tasks.count);
    statistics_put(hash, "idle", loop->idle_count);
    statistics_put(hash, "timers", loop->timers.size);
    rb_hash_aset(hash, ID2SYM(rb_intern("longest_run")), DBL2NUM((double)counted->longest_run / 1e9));
    return hash;
}

/*
 * call-seq: scheduler.measure_runs = true or false
 *
 * Sets whether to measure how long fibers run without parking, for statistics[:longest_run]. Costs reading the clock
 * at each switch.
 */
static VALUE set_measure_runs(VALUE self, VALUE measure)
{
    struct loop *loop = loop_of(self);
    measuring_set_one(loop, MEASURE_LONGEST, RTEST(measure));
    return measure;
}

/*
 * call-seq: scheduler.sleeps? -> true or false
 *
 * Whether the loop waits in the kernel for something to do. It does not while a fiber is ready, although it polls then,
 * and the status of its thread is "sleep".
 *
 * @api private
 */
static VALUE sleeps_p(VALUE self)
{
    return loop_of(self)->sleeps_since ? Qtrue : Qfalse;
}

void statistics_define(VALUE scheduler_class)
{
    rb_define_method(scheduler_class, "statistics", scheduler_statistics, 0);
    rb_define_method(scheduler_class, "sleeps?", sleeps_p, 0);
    rb_define_method(scheduler_class, "measure_runs=", set_measure_runs, 1);
}
