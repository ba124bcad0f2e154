// Exceptions that other fibers and threads raise in a fiber that reacquires a Mutex, see doc/adr/0014: the fiber raises
// them once it holds the Mutex.
#include "loop/internals.h"

#include "loop/wake.h"

// A variable of the fiber itself, as in pending_wakeup.c: an Array of the exceptions.
static ID id_deferred, id_kill;

static void raise_here(VALUE fiber, VALUE exception)
{
    if (exception == LOOP_KILL) {
        rb_funcall(fiber, id_kill, 0);
    } else {
        rb_exc_raise(exception);
    }
}

static void defer(struct loop *loop, VALUE fiber, VALUE exception)
{
    VALUE deferred = rb_attr_get(fiber, id_deferred);
    if (NIL_P(deferred)) rb_ivar_set(fiber, id_deferred, deferred = rb_ary_new());
    rb_ary_push(deferred, exception);
    loop->deferred++;
}

void raise_in_wait(struct loop *loop, VALUE exception, bool reacquires)
{
    VALUE fiber = rb_fiber_current();
    if (reacquires && !RB_OBJ_FROZEN(fiber)) {
        defer(loop, fiber, exception);
    } else {
        raise_here(fiber, exception);
    }
}

static VALUE deferred_take(struct loop *loop, VALUE fiber)
{
    if (!loop->deferred) return Qnil;
    VALUE deferred = rb_attr_get(fiber, id_deferred);
    if (NIL_P(deferred) || RARRAY_LEN(deferred) == 0) return Qnil;
    loop->deferred--;
    return rb_ary_shift(deferred);
}

void loop_raise_deferred(struct loop *loop)
{
    VALUE fiber = rb_fiber_current(), exception = deferred_take(loop, fiber);
    if (!NIL_P(exception)) raise_here(fiber, exception);
}

void loop_forget_deferred(struct loop *loop)
{
    while (!NIL_P(deferred_take(loop, rb_fiber_current())))
        continue;
}

void Init_heddle_deferred(void)
{
    id_deferred = rb_intern("__heddle_deferred__");
    id_kill = rb_intern("kill");
}
