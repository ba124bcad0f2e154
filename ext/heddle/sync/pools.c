#include "sync/pools.h"

#include "os/main_ractor.h"
#include "shims.h"

#include <ruby/ractor.h>

static VALUE pools;      // an ObjectSpace::WeakMap, whose keys Ruby neither marks nor moves; or nil
static VALUE ids;        // without `pools`: the numbers of those that were added, of which some have been collected
static long enough = 64; // so many numbers: time to drop those of collected ones
static ID id_set, id_keys, id_count, id_by_id;

enum { MOST = 65536 }; // numbers while those of collected ones cannot be told

// While there are other Ractors, Ruby finds no such object.
static bool alone(void)
{
    return rb_funcall(rb_cRactor, id_count, 0) == INT2FIX(1);
}

static VALUE find(VALUE id)
{
    return rb_funcall(rb_path2class("ObjectSpace"), id_by_id, 1, id);
}

static VALUE collected(VALUE id, VALUE error)
{
    (void)id, (void)error;
    return Qnil;
}

// Drops the numbers of collected ones. Another thread may run meanwhile, and start a Ractor.
static VALUE living(void)
{
    VALUE found = rb_ary_new(), lost = rb_ary_new();
    if (!alone()) return found;
    for (long i = 0; i < RARRAY_LEN(ids); i++) {
        VALUE id = RARRAY_AREF(ids, i), pool = rb_rescue2(find, id, collected, Qnil, rb_eRangeError, (VALUE)0);
        if (NIL_P(pool)) {
            rb_ary_push(lost, id);
        } else {
            rb_ary_push(found, pool);
        }
    }
    if (RARRAY_LEN(lost) && alone()) rb_ary_replace(ids, rb_funcall(ids, '-', 1, lost));
    return found;
}

void pools_add(VALUE pool)
{
    if (!in_main_ractor()) return;
    if (!NIL_P(pools)) {
        rb_funcall(pools, id_set, 2, pool, Qtrue);
        return;
    }
    if (RARRAY_LEN(ids) >= enough && alone()) {
        living();
        enough = 2 * RARRAY_LEN(ids) + 64;
    } else if (RARRAY_LEN(ids) >= enough && RARRAY_LEN(ids) >= MOST) {
        rb_ary_shift(ids);
    }
    rb_ary_push(ids, rb_obj_id(pool));
}

/*
 * call-seq: Heddle::Pools.add(pool) -> pool
 *
 * @api private
 */
static VALUE add(VALUE self, VALUE pool)
{
    (void)self;
    pools_add(pool);
    return pool;
}

/*
 * call-seq: Heddle::Pools.all -> [FiberPool, ResourcePool, Semaphore or DB::Connection, ...]
 *
 * Those that have not been collected, in no order.
 *
 * @api private
 */
static VALUE all(VALUE self)
{
    (void)self;
    return NIL_P(pools) ? living() : rb_funcall(pools, id_keys, 0);
}

void Init_heddle_pools(void)
{
    id_set = rb_intern("[]=");
    id_keys = rb_intern("keys");
    id_count = rb_intern("count");
    id_by_id = rb_intern("_id2ref");
    VALUE weak_map =
        SHIM_WEAK_MAPS_BREAK ? Qnil : rb_class_new_instance(0, NULL, rb_path2class("ObjectSpace::WeakMap"));
    rb_gc_register_mark_object(pools = weak_map);
    rb_gc_register_mark_object(ids = rb_ary_new());
    VALUE module = rb_define_module_under(heddle_module, "Pools");
    rb_define_singleton_method(module, "add", add, 1);
    rb_define_singleton_method(module, "all", all, 0);
}
