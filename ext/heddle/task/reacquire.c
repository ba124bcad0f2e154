// Mutex#sleep and ConditionVariable#wait raise what is pending after they have reacquired their Mutex, see
// doc/adr/0014.
#include "loop/interrupt.h"
#include "shims.h"
#include "task/current.h"

#include "loop/wake.h"

#include <ruby/ractor.h>

struct arguments {
    int argc;
    VALUE *argv;
};

static struct loop *current_loop(void)
{
    return context_of_fiber().loop;
}

static VALUE call_original(VALUE argument)
{
    struct arguments *arguments = (struct arguments *)argument;
    return rb_call_super(arguments->argc, arguments->argv);
}

// Nothing may replace a kill or a throw that unwinds the fiber.
static bool may_raise(const struct loop *loop)
{
    VALUE error = rb_errinfo();
    return (NIL_P(error) || is_exception(error)) && !loop->owner->killed;
}

// Ruby may have refused (another thread owns the Mutex), so that the next kernel_sleep does not come from Mutex#sleep.
// The block may have forked, and the child has no scheduler.
static VALUE reacquired(VALUE argument)
{
    (void)argument;
    struct loop *loop = current_loop();
    if (!loop) return Qnil;
    loop->releasing_mutex = false;
    if (loop->deferred && may_raise(loop)) loop_raise_deferred(loop);
    return Qnil;
}

// Tells the hook kernel_sleep that Mutex#sleep calls it, and raises what the wait for the Mutex has put off.
static VALUE sleep_and_reacquire(int argc, VALUE *argv)
{
    struct loop *loop = current_loop();
    if (!loop) return rb_call_super(argc, argv);
    struct arguments arguments = {argc, argv};
    loop->releasing_mutex = true;
    VALUE value = rb_ensure(call_original, (VALUE)&arguments, reacquired, Qnil);
    if ((loop = current_loop())) owner_raise_deferred(loop->owner);
    return value;
}

// Prepended to Thread::Mutex …
static VALUE mutex_sleep(int argc, VALUE *argv, VALUE self)
{
    (void)self;
    return sleep_and_reacquire(argc, argv);
}

// … and to Thread::ConditionVariable if that does not call Mutex#sleep.
static VALUE condition_wait(int argc, VALUE *argv, VALUE self)
{
    (void)self;
    return sleep_and_reacquire(argc, argv);
}

void Init_heddle_reacquire(void)
{
    VALUE reacquire = rb_define_module_under(heddle_module, "Reacquire");
    rb_ext_ractor_safe(true); // every Ractor has locks; loops belong to the main Ractor
    rb_define_method(reacquire, "sleep", mutex_sleep, -1);
    rb_define_method(rb_define_module_under(reacquire, "Condition"), "wait", condition_wait, -1);
    rb_ext_ractor_safe(false);
    rb_funcall(heddle_module, rb_intern("private_constant"), 1, ID2SYM(rb_intern("Reacquire")));
}
