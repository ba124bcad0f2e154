#include "sync/pools.h"

#include "os/main_ractor.h"

static VALUE pools; // an ObjectSpace::WeakMap, whose keys Ruby neither marks nor moves
static ID id_set, id_keys;

void pools_add(VALUE pool)
{
    // The pool is its own value: of each pair, WeakMap#keys of Ruby 3.1 asks only whether the value is alive, and would
    // return pools that GC is about to sweep.
    if (in_main_ractor()) rb_funcall(pools, id_set, 2, pool, pool);
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
    return rb_funcall(pools, id_keys, 0);
}

void Init_heddle_pools(void)
{
    id_set = rb_intern("[]=");
    id_keys = rb_intern("keys");
    rb_gc_register_mark_object(pools = rb_class_new_instance(0, NULL, rb_path2class("ObjectSpace::WeakMap")));
    VALUE module = rb_define_module_under(heddle_module, "Pools");
    rb_define_singleton_method(module, "add", add, 1);
    rb_define_singleton_method(module, "all", all, 0);
}
