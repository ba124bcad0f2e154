// What Heddle.metrics reads: the counters of all loops, and the times that they measure.
#include "heddle.h"
#include "loop/all_loops.h"
#include "resolver/resolver.h"
#include "sync/permit_use.h"
#include "task/task_loop.h"

static const char *const ends[LOOP_ENDS] = {"completed", "failed", "cancelled", "withdrawn"};

static void put(VALUE hash, const char *key, VALUE value)
{
    rb_hash_aset(hash, ID2SYM(rb_intern(key)), value);
}

static void put_counts(VALUE hash, const char *key, const char *const *names, const uint64_t *counts, int count)
{
    VALUE by_name = rb_hash_new();
    for (int i = 0; i < count; i++) {
        if (names[i]) put(by_name, names[i], ULL2NUM(counts[i]));
    }
    put(hash, key, by_name);
}

// A yield does not wait for anything: how long it takes is the loop's lag.
static VALUE waits_hash(const struct loop_times *times)
{
    VALUE waits = rb_hash_new();
    for (int kind = 0; kind < WAIT_KINDS; kind++) {
        const char *name = kind == WAIT_YIELD ? NULL : wait_kind_names[kind];
        if (name) put(waits, name, histogram_hash(&times->wait[kind]));
    }
    return waits;
}

static void put_present(VALUE hash)
{
    size_t loops = 0, tasks = 0, idle = 0, timers = 0, ready = 0;
    for (struct loop *loop = loops_first(); loop; loop = loop->next_live, loops++) {
        tasks += task_loop_of(loop)->tasks.count;
        idle += loop->idle_count;
        timers += loop->timers.size;
        ready += loop->ready_count;
    }
    put(hash, "loops", SIZET2NUM(loops));
    put(hash, "tasks", SIZET2NUM(tasks));
    put(hash, "idle_fibers", SIZET2NUM(idle));
    put(hash, "timers", SIZET2NUM(timers));
    put(hash, "ready", SIZET2NUM(ready));
}

struct pools {
    VALUE permits, used, waiting, wait;
};

static void add_pool(const struct permit_class *of_class, void *argument)
{
    const struct pools *pools = argument;
    put(pools->permits, of_class->name, LONG2NUM(of_class->permits));
    put(pools->used, of_class->name, LONG2NUM(of_class->taken));
    put(pools->waiting, of_class->name, LONG2NUM(of_class->waiting));
    put(pools->wait, of_class->name, histogram_hash(&of_class->wait));
}

static void put_pools(VALUE hash)
{
    struct pools pools = {rb_hash_new(), rb_hash_new(), rb_hash_new(), rb_hash_new()};
    permit_use_each(add_pool, &pools);
    put(hash, "pool_permits", pools.permits);
    put(hash, "pool_used", pools.used);
    put(hash, "pool_waiting", pools.waiting);
    put(hash, "pool_wait", pools.wait);
}

static void put_names(VALUE hash)
{
    uint64_t found, failed;
    resolver_counts(&found, &failed);
    VALUE names = rb_hash_new();
    put(names, "found", ULL2NUM(found));
    put(names, "failed", ULL2NUM(failed));
    put(hash, "names", names);
}

/*
 * call-seq: Heddle::Metrics.read -> Hash
 *
 * The numbers of all loops of this process, also those that have closed.
 *
 * @api private
 */
static VALUE metrics_read(VALUE self)
{
    (void)self;
    struct loop_statistics counted;
    struct loop_times times;
    all_loops_sum(&counted, &times);
    VALUE hash = rb_hash_new();
    put(hash, "switches", ULL2NUM(counted.switches));
    put(hash, "polls", ULL2NUM(counted.polls));
    put(hash, "empty_polls", ULL2NUM(counted.empty_polls));
    put(hash, "sleeps", ULL2NUM(counted.sleeps));
    put(hash, "slept", DBL2NUM((double)counted.idle / 1e9));
    put(hash, "system_calls", ULL2NUM(counted.system_calls));
    put(hash, "spawned", ULL2NUM(counted.spawned));
    put(hash, "reused", ULL2NUM(counted.reused));
    put_counts(hash, "waits", wait_kind_names, counted.waits, WAIT_KINDS);
    put_counts(hash, "ended", ends, counted.ended, LOOP_ENDS);
    put_present(hash);
    put(hash, "run", histogram_hash(&times.run));
    put(hash, "lag", histogram_hash(&times.lag));
    put(hash, "wait", waits_hash(&times));
    put_pools(hash);
    put_names(hash);
    return hash;
}

/*
 * call-seq: Heddle.measure_times = true or false
 *
 * Sets whether all loops of this process measure times for the histograms of {Heddle.metrics}: +heddle.loop.lag+,
 * +heddle.task.run+ and +heddle.task.wait+. That costs two or three readings of the clock at each switch between
 * fibers. Exporters turn it on. A child of fork does as its parent did.
 *
 * @param measure [Boolean]
 * @return [Boolean]
 */
static VALUE set_measure_times(VALUE self, VALUE measure)
{
    (void)self;
    all_loops_measure(MEASURE_TIMES, RTEST(measure));
    return measure;
}

/*
 * call-seq: Heddle.measure_times? -> true or false
 *
 * @return [Boolean] whether all loops of this process measure times
 */
static VALUE measures_times(VALUE self)
{
    (void)self;
    return measuring_bits() & MEASURE_TIMES ? Qtrue : Qfalse;
}

void Init_heddle_metrics(void)
{
    VALUE metrics = rb_define_module_under(heddle_module, "Metrics");
    rb_define_singleton_method(metrics, "read", metrics_read, 0);
    rb_define_const(metrics, "BOUNDS", rb_obj_freeze(histogram_bounds_array()));
    rb_define_singleton_method(heddle_module, "measure_times=", set_measure_times, 1);
    rb_define_singleton_method(heddle_module, "measure_times?", measures_times, 0);
}
