// What lib/heddle/insight/stall_watch.rb asks of the watch for stalls.
#include "insight/stall_watch.h"

#include "heddle.h"
#include "loop/context.h"
#include "loop/loop.h"

#include <ruby/debug.h>

static VALUE cStallWatch;

/*
 * call-seq: StallWatch.limit = seconds or nil
 *
 * @api private
 */
static VALUE set_limit(VALUE klass, VALUE seconds)
{
    (void)klass;
    stall_watch_set(NIL_P(seconds) ? 0 : deadline_span(seconds));
    return seconds;
}

/*
 * call-seq: StallWatch.watch_loop(scheduler, thread_number) -> nil
 *
 * Watches a loop that runs already, on the thread with that Thread#native_thread_id.
 *
 * @api private
 */
static VALUE watch_loop(VALUE klass, VALUE scheduler, VALUE number)
{
    (void)klass;
    struct loop *loop = loop_of(scheduler);
    if (!loop->closed) stall_watch_loop(loop, NUM2INT(number));
    return Qnil;
}

/*
 * call-seq: StallWatch.signal -> String or nil
 *
 * The name of the signal that makes threads look at their own stacks; nil if there is none.
 */
static VALUE signal_name(VALUE klass)
{
    (void)klass;
    const char *name = sampler_signal();
    return name ? rb_str_new_cstr(name) : Qnil;
}

/*
 * call-seq: StallWatch.wait(seconds or nil) -> nil
 *
 * Waits for a stall. May return earlier.
 *
 * @api private
 */
static VALUE wait_for_stall(VALUE klass, VALUE seconds)
{
    (void)klass;
    stall_wait(deadline_span(seconds));
    return Qnil;
}

/*
 * call-seq: StallWatch.wake -> nil
 *
 * Ends that wait.
 *
 * @api private
 */
static VALUE wake(VALUE klass)
{
    (void)klass;
    stall_wake();
    return Qnil;
}

static VALUE seconds_of(int64_t nanoseconds)
{
    return nanoseconds < 0 ? Qnil : DBL2NUM((double)nanoseconds / 1e9);
}

static VALUE place_of(const struct stall *stall)
{
    if (stall->place) return stall->place;
    VALUE places = rb_ary_new();
    int count = atomic_load(&stall->frames.count);
    for (int i = 0; i < count; i++) {
        VALUE frame = stall->frames.of[i];
        int line = stall->frames.lines[i];
        VALUE path = line ? rb_profile_frame_path(frame) : Qnil; // nil: a method in C
        rb_ary_push(places, rb_ary_new_from_args(3, path, INT2NUM(line), rb_profile_frame_full_label(frame)));
    }
    return places;
}

static VALUE waiters_of(const struct stall *stall)
{
    VALUE waiters = rb_ary_new();
    for (size_t i = 0; i < STALL_WAITERS && stall->waiters[i].length; i++) {
        VALUE task = stall->waiters[i].task ? stall->waiters[i].task : Qnil;
        rb_ary_push(waiters, rb_ary_new_from_args(3, task, ULL2NUM(stall->waiters[i].number),
                                                  seconds_of(stall->waiters[i].length)));
    }
    return waiters;
}

static void put(VALUE hash, const char *key, VALUE value)
{
    rb_hash_aset(hash, ID2SYM(rb_intern(key)), value);
}

/*
 * call-seq: StallWatch.take -> Hash or nil
 *
 * The first stall that was not taken.
 *
 * @api private
 */
static VALUE take(VALUE klass)
{
    (void)klass;
    static const char *const reasons[] = {
        [STALL_RUBY] = "ruby",        [STALL_NATIVE] = "native", [STALL_GC] = "gc",
        [STALL_GVL] = "gvl",          [STALL_KERNEL] = "kernel", [STALL_BLOCKED] = "blocked",
        [STALL_DEADLINE] = "deadline"};
    sampler_note_libraries(); // those that were loaded since
    const struct stall *stall = stall_first();
    if (!stall) return Qnil;
    VALUE hash = rb_hash_new();
    put(hash, "reason", ID2SYM(rb_intern(reasons[stall->reason])));
    put(hash, "seconds", seconds_of(stall->length));
    put(hash, "cpu", seconds_of(stall->cpu));
    put(hash, "gc", seconds_of(stall->gc));
    put(hash, "ended", seconds_of(stall->ended));
    put(hash, "task", stall->task ? stall->task : Qnil);
    put(hash, "number", ULL2NUM(stall->number));
    put(hash, "thread", stall->thread);
    put(hash, "culprit", stall->culprit ? INT2NUM(stall->culprit) : Qnil);
    put(hash, "place", place_of(stall));
    put(hash, "waited", UINT2NUM(stall->waited));
    put(hash, "waiters", waiters_of(stall));
    stall_take();
    return hash;
}

/*
 * call-seq: StallWatch.lost -> Integer
 *
 * How many stalls were lost, because too many came at once.
 *
 * @api private
 */
static VALUE lost(VALUE klass)
{
    (void)klass;
    return ULL2NUM(stalls_lost());
}

static void mark_root(void *unused)
{
    (void)unused;
    stall_watch_mark();
}

void Init_heddle_stalls(void)
{
    static const rb_data_type_t marking_type = {
        .wrap_struct_name = "Heddle::Stalls",
        .function = {.dmark = mark_root},
        .flags = RUBY_TYPED_FREE_IMMEDIATELY,
    };
    // Not WB_PROTECTED: each GC calls the function. The pointer only has to be none of NULL.
    rb_gc_register_mark_object(TypedData_Wrap_Struct(rb_cObject, &marking_type, &cStallWatch));
    cStallWatch = rb_define_class_under(heddle_module, "StallWatch", rb_cObject);
    rb_define_singleton_method(cStallWatch, "limit=", set_limit, 1);
    rb_define_singleton_method(cStallWatch, "watch_loop", watch_loop, 2);
    rb_define_singleton_method(cStallWatch, "signal", signal_name, 0);
    rb_define_singleton_method(cStallWatch, "wait", wait_for_stall, 1);
    rb_define_singleton_method(cStallWatch, "wake", wake, 0);
    rb_define_singleton_method(cStallWatch, "take", take, 0);
    rb_define_singleton_method(cStallWatch, "lost", lost, 0);
}
