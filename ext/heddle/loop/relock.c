#include "loop/relock.h"

#include "loop/loop.h"
#include "loop/scheduler.h"
#include "shims.h"

static void raise_what_was_held_up(void)
{
    struct loop *loop = scheduler_loop(rb_fiber_scheduler_current());
    if (loop) task_raise_deferred(loop->task);
}

// To be prepended to Thread::Mutex …
static VALUE mutex_sleep(int argc, VALUE *argv, VALUE self)
{
    (void)self;
    VALUE slept = rb_call_super(argc, argv);
    raise_what_was_held_up();
    return slept;
}

// … and to Thread::ConditionVariable where that does not call Mutex#sleep.
static VALUE condition_wait(int argc, VALUE *argv, VALUE self)
{
    (void)self;
    VALUE woken = rb_call_super(argc, argv);
    raise_what_was_held_up();
    return woken;
}

void Init_heddle_relock(void)
{
    VALUE relock = rb_define_module_under(heddle_module, "Relock");
    rb_define_method(relock, "sleep", mutex_sleep, -1);
    rb_define_method(rb_define_module_under(relock, "Condition"), "wait", condition_wait, -1);
    rb_funcall(heddle_module, rb_intern("private_constant"), 1, ID2SYM(rb_intern("Relock")));
}
