#include "loop/scope_fiber.h"

#include "loop/loop.h"

#include <string.h>

static VALUE strangers; // ObjectSpace::WeakMap: of a scope's address the fiber; a chain must not keep a fiber alive
static ID id_set, id_get, id_to_s, id_locations, id_base_label;

void scope_note_fiber(struct scope *scope, struct scope_chain *chain)
{
    scope->stranger = false;
    if (!chain->task && !chain->thread) return; // under a foreign scheduler each fiber has its own chain
    VALUE fiber = rb_fiber_current();
    if (!chain->innermost) chain->fiber = fiber;
    if (chain->fiber == fiber || scope->inherited) return;
    scope->stranger = true;
    rb_funcall(strangers, id_set, 2, ULL2NUM((uintptr_t)scope), fiber);
}

static VALUE fiber_of(const struct scope *scope)
{
    return scope->stranger ? rb_funcall(strangers, id_get, 1, ULL2NUM((uintptr_t)scope)) : scope->chain->fiber;
}

bool scope_lost(const struct scope *scope)
{
    return scope->stranger && scope->chain && NIL_P(fiber_of(scope));
}

// Of a task that waits, the fiber that does: its loop asks from another one.
static VALUE running_fiber(const struct scope_chain *chain)
{
    if (chain->task && chain->task->wait) return chain->task->wait->fiber;
    VALUE waiting = chain->thread ? loops_root_fiber(chain->thread) : 0;
    return waiting ? waiting : rb_fiber_current();
}

// Ruby does not say which fiber has resumed which; but what a suspended one does last is one of these if it waits for
// another, and a block's way out (Fiber.yield, Enumerator::Yielder#<<, Array#each …) if it has yielded.
static bool has_resumed_another(VALUE fiber)
{
    static const char *const ways[] = {"resume", "next", "next_values", "peek", "peek_values", "transfer", "raise"};
    VALUE locations = rb_funcall(fiber, id_locations, 2, INT2FIX(0), INT2FIX(1));
    if (NIL_P(locations) || RARRAY_LEN(locations) == 0) return false;
    VALUE label = rb_funcall(RARRAY_AREF(locations, 0), id_base_label, 0);
    for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
        if (!NIL_P(label) && strcmp(StringValueCStr(label), ways[i]) == 0) return true;
    }
    return false;
}

bool scope_aside(const struct scope *scope)
{
    const struct scope_chain *chain = scope->chain;
    if (scope->inherited || !chain || (!chain->task && !chain->thread)) return false;
    VALUE fiber = fiber_of(scope);
    if (NIL_P(fiber)) return true;
    if (fiber == running_fiber(chain)) return false;
    // "#<Fiber:… (suspended)>". A thread's own fiber says nothing of the kind, and cannot yield.
    VALUE state = rb_funcall(fiber, id_to_s, 0);
    if (strstr(StringValueCStr(state), "(terminated)")) return true;
    return strstr(StringValueCStr(state), "(suspended)") && !has_resumed_another(fiber);
}

void Init_heddle_scope_fiber(void)
{
    id_set = rb_intern("[]=");
    id_get = rb_intern("[]");
    id_to_s = rb_intern("to_s");
    id_locations = rb_intern("backtrace_locations");
    id_base_label = rb_intern("base_label");
    strangers = rb_class_new_instance(0, NULL, rb_path2class("ObjectSpace::WeakMap"));
    rb_gc_register_mark_object(strangers);
}
