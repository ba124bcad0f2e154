#include "sync/pools.h"

#include "os/main_ractor.h"
#include "shims.h"

static VALUE pools; // an ObjectSpace::WeakMap, whose keys Ruby neither marks nor moves; or nil
static VALUE kinds; // without `pools`: the classes of pools that were added
static ID id_set, id_keys;

void pools_add(VALUE pool)
{
    if (!in_main_ractor()) return;
    if (NIL_P(pools)) {
        if (!RTEST(rb_ary_includes(kinds, rb_obj_class(pool)))) rb_ary_push(kinds, rb_obj_class(pool));
    } else {
        rb_funcall(pools, id_set, 2, pool, Qtrue);
    }
}

static VALUE push(RB_BLOCK_CALL_FUNC_ARGLIST(object, found))
{
    (void)argc, (void)argv, (void)blockarg;
    return rb_ary_push(found, object);
}

// Ruby lists no such object while there are other Ractors.
static VALUE in_object_space(void)
{
    VALUE found = rb_ary_new();
    for (long i = 0; i < RARRAY_LEN(kinds); i++) {
        VALUE kind = RARRAY_AREF(kinds, i);
        rb_block_call(rb_path2class("ObjectSpace"), rb_intern("each_object"), 1, &kind, push, found);
    }
    return rb_funcall(found, rb_intern("uniq"), 0); // a class and its subclass
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
    return NIL_P(pools) ? in_object_space() : rb_funcall(pools, id_keys, 0);
}

void Init_heddle_pools(void)
{
    id_set = rb_intern("[]=");
    id_keys = rb_intern("keys");
    VALUE weak_map =
        SHIM_WEAK_MAPS_BREAK ? Qnil : rb_class_new_instance(0, NULL, rb_path2class("ObjectSpace::WeakMap"));
    rb_gc_register_mark_object(pools = weak_map);
    rb_gc_register_mark_object(kinds = rb_ary_new());
    VALUE module = rb_define_module_under(heddle_module, "Pools");
    rb_define_singleton_method(module, "add", add, 1);
    rb_define_singleton_method(module, "all", all, 0);
}
