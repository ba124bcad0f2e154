// A run's scheduler, which is set on its thread for a block and closed afterwards.
#include "scheduler/bindings.h"

#include "protect.h"
#include "shims.h"
#include "task/task_loop.h"

static VALUE close_and_take_off(VALUE unused)
{
    (void)unused;
    return rb_fiber_scheduler_set(Qnil);
}

static bool is_taken_off(VALUE self)
{
    return rb_fiber_scheduler_get() != self;
}

// Ruby 3.1 keeps a scheduler whose close has raised. After that, the close of a loop that has closed does nothing.
static VALUE take_off(VALUE self)
{
    int state = 0;
    protect_next(close_and_take_off, Qnil, &state);
    protect_until(is_taken_off, close_and_take_off, self, &state);
    if (state) rb_jump_tag(state);
    return Qnil;
}

// Notes a Thread#kill, which rb_ensure hides from what it calls.
static VALUE yield_until_killed(VALUE self)
{
    int state = 0;
    VALUE result = rb_protect(yield_nothing, Qnil, &state);
    if (!state) return result;
    tasks_of(self)->killed = FIXNUM_P(rb_errinfo());
    rb_jump_tag(state);
}

/*
 * call-seq: scheduler.installed { ... } -> object
 *
 * Sets the scheduler on this thread for the time of the block, and closes it afterwards. Whatever interrupt comes
 * meanwhile, even while the scheduler closes, the thread has no scheduler afterwards: in Ruby code an interrupt may
 * come before the first line of an +ensure+.
 *
 * @api private
 */
static VALUE installed(VALUE self)
{
    rb_need_block();
    rb_fiber_scheduler_set(self);
    return rb_ensure(yield_until_killed, self, take_off, self);
}

void installed_define(VALUE scheduler_class)
{
    rb_define_method(scheduler_class, "installed", installed, 0);
}
