#include "cancel/scope_fiber.h"

#include "os/fork.h"

#include <string.h>

// ObjectSpace::WeakMap from scope to fiber: a chain must not keep a fiber alive. By objects, not by addresses: where a
// fiber is collected whose scope had the same address before, Ruby before 3.3 drops the entry of the new one.
static VALUE other_fibers;
static VALUE fiber_to_s, eFiberError;
static ID id_set, id_get, id_bind_call;

// Tries to resume the fiber that has resumed this one. Ruby refuses, and its message tells whether that fiber was
// itself resumed, and so may yield.
static VALUE try_to_resume(RB_BLOCK_CALL_FUNC_ARGLIST(fiber, unused))
{
    (void)unused, (void)argc, (void)argv, (void)blockarg;
    return rb_fiber_resume(fiber, 0, NULL);
}

static VALUE scope_fiber_ask(VALUE fiber)
{
    return rb_fiber_resume(rb_fiber_new(try_to_resume, Qnil), 1, &fiber);
}

// Returns whether the running fiber, which the caller passes, can yield. A thread's root fiber cannot, nor a fiber that
// was transferred to. Takes microseconds. May raise an interrupt.
static bool fiber_can_yield(VALUE fiber)
{
    int state = 0;
    rb_protect(scope_fiber_ask, fiber, &state);
    VALUE error = rb_errinfo();
    if (state && !RTEST(rb_obj_is_kind_of(error, eFiberError)))
        rb_jump_tag(state); // an interrupt; nothing has changed yet
    rb_set_errinfo(Qnil);
    VALUE message = rb_obj_as_string(error);
    return strstr(StringValueCStr(message), "resuming fiber") == NULL;
}

bool scope_chain_at_home(struct scope_chain *chain, VALUE fiber)
{
    if (chain->owner) return chain->owner->fiber == fiber;
    if (!chain->thread) return true; // under another scheduler each fiber has a chain of its own
    if (!chain->root && !fiber_can_yield(fiber)) chain->root = fiber; // checked once a thread
    return chain->root == fiber;
}

void scope_note_fiber(struct scope *scope, struct scope_chain *chain)
{
    scope->other_fiber = false;
    if (scope->inherited) return;
    VALUE fiber = rb_fiber_current();
    if (scope_chain_at_home(chain, fiber)) return;
    rb_funcall(other_fibers, id_set, 2, scope->self, fiber);
    scope->other_fiber = true;
}

static VALUE fiber_of(const struct scope *scope)
{
    return rb_funcall(other_fibers, id_get, 1, scope->self);
}

bool scope_abandoned(const struct scope *scope)
{
    return scope->other_fiber && scope->chain && NIL_P(fiber_of(scope));
}

// Only Ruby knows which fiber has resumed which (Enumerator#next and C extensions resume without a method), and tells
// it in one place only: the end of Fiber#to_s, "#<Fiber:0x… path:line (suspended by resuming)>". Only the end counts,
// because a path stands before it.
static bool scope_fiber_ends_with(VALUE description, const char *state)
{
    long length = (long)strlen(state);
    const char *end = RSTRING_PTR(description) + RSTRING_LEN(description);
    return RSTRING_LEN(description) >= length && memcmp(end - length, state, (size_t)length) == 0;
}

bool scope_other_fiber_suspended(const struct scope *scope)
{
    const struct scope_chain *chain = scope->chain;
    if (!chain) return false;
    VALUE fiber = fiber_of(scope);
    if (NIL_P(fiber)) return true;
    // While the code waits in a loop of ours, another fiber asks, or the helper thread.
    bool waits = chain->waiting && chain->forks == fork_count();
    if (fiber == (waits ? chain->waiting : rb_fiber_current())) return false;
    if (!RTEST(rb_fiber_alive_p(fiber))) return true;
    VALUE description = rb_funcall(fiber_to_s, id_bind_call, 1, fiber);
    return scope_fiber_ends_with(
        description,
        " (suspended)>"); // not "(suspended by resuming)", nor "(resumed)": asked from another thread
}

void Init_heddle_scope_fiber(void)
{
    id_set = rb_intern("[]=");
    id_get = rb_intern("[]");
    id_bind_call = rb_intern("bind_call");
    fiber_to_s = rb_funcall(heddle_cFiber, rb_intern("instance_method"), 1, ID2SYM(rb_intern("to_s")));
    rb_gc_register_mark_object(fiber_to_s);
    rb_gc_register_mark_object(eFiberError = rb_path2class("FiberError"));
    other_fibers = rb_class_new_instance(0, NULL, rb_path2class("ObjectSpace::WeakMap"));
    rb_gc_register_mark_object(other_fibers);
}
