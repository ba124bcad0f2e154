#include "os/background_thread.h"

#include "heddle.h"

static ID id_handle_interrupt, id_priority, id_set_priority, id_group, id_enclosed, id_add, id_storage, id_aset;
static VALUE everything_at_once, default_group;

static bool closed(VALUE group)
{
    return OBJ_FROZEN(group) || RTEST(rb_funcall(group, id_enclosed, 0));
}

// Ruby lets no thread out of such a group, nor into one.
static void leave_group(VALUE thread)
{
    VALUE group = rb_funcall(thread, id_group, 0);
    if (NIL_P(group) || group == default_group || closed(group) || closed(default_group)) return;
    rb_funcall(default_group, id_add, 1, thread);
}

static int forget_key(VALUE key, VALUE value, VALUE fiber_class)
{
    (void)value;
    rb_funcall(fiber_class, id_aset, 2, key, Qnil);
    return ST_CONTINUE;
}

static void clear_storage(void)
{
    VALUE fiber = rb_fiber_current();
    if (!rb_respond_to(fiber, id_storage)) return; // # RUBY_VERSION >= 3.2
    VALUE copy = rb_funcall(fiber, id_storage, 0);
    if (!NIL_P(copy)) rb_hash_foreach(copy, forget_key, heddle_cFiber);
}

void background_thread_settle(void)
{
    VALUE thread = rb_thread_current();
    if (rb_funcall(thread, id_priority, 0) != INT2FIX(0)) rb_funcall(thread, id_set_priority, 1, INT2FIX(0));
    leave_group(thread);
    clear_storage();
}

struct unmasked {
    VALUE (*body)(VALUE);
    VALUE argument;
};

static VALUE background_thread_call_body(RB_BLOCK_CALL_FUNC_ARGLIST(unused, argument))
{
    (void)unused, (void)argc, (void)argv, (void)blockarg;
    const struct unmasked *unmasked = (const struct unmasked *)argument;
    return unmasked->body(unmasked->argument);
}

VALUE background_thread_unmasked(VALUE (*body)(VALUE), VALUE argument)
{
    struct unmasked unmasked = {body, argument};
    return rb_block_call(rb_cThread, id_handle_interrupt, 1, &everything_at_once, background_thread_call_body,
                         (VALUE)&unmasked);
}

static VALUE settle_and_serve(VALUE argument)
{
    const struct unmasked *served = (const struct unmasked *)argument;
    background_thread_settle();
    return served->body(served->argument);
}

VALUE background_thread_serve(VALUE (*body)(VALUE), VALUE argument)
{
    struct unmasked served = {body, argument};
    return background_thread_unmasked(settle_and_serve, (VALUE)&served);
}

/*
 * call-seq: Heddle.background_thread { ... } -> the block's value
 *
 * The work of a thread that Heddle makes for the whole process, without anything that the thread has from the one that
 * happened to make it: mask, priority, group, fiber storage.
 *
 * @api private
 */
static VALUE background_thread(VALUE self)
{
    (void)self;
    return background_thread_serve(rb_yield, Qnil);
}

/*
 * call-seq: Heddle.settle_thread -> nil
 *
 * The same for a thread with a mask of its own: the caller sets the mask, and calls this first.
 *
 * @api private
 */
static VALUE settle_thread(VALUE self)
{
    (void)self;
    background_thread_settle();
    return Qnil;
}

void Init_heddle_background_thread(void)
{
    id_handle_interrupt = rb_intern("handle_interrupt");
    id_priority = rb_intern("priority");
    id_set_priority = rb_intern("priority=");
    id_group = rb_intern("group");
    id_enclosed = rb_intern("enclosed?");
    id_add = rb_intern("add");
    id_storage = rb_intern("storage");
    id_aset = rb_intern("[]=");
    rb_gc_register_mark_object(default_group = rb_const_get(rb_path2class("ThreadGroup"), rb_intern("Default")));
    rb_gc_register_mark_object(everything_at_once = rb_hash_new());
    rb_hash_aset(everything_at_once, rb_cObject, ID2SYM(rb_intern("immediate")));
    rb_define_singleton_method(heddle_module, "background_thread", background_thread, 0);
    rb_define_singleton_method(heddle_module, "settle_thread", settle_thread, 0);
}
