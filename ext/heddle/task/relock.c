// What Mutex#sleep and ConditionVariable#wait do once they have their Mutex again, see doc/adr/0014.
#include "task/bindings.h"

#include "shims.h"
#include "task/current.h"
#include "task/interrupt.h"

struct arguments {
    int argc;
    VALUE *argv;
};

static struct loop *current_loop(void)
{
    return place_of_fiber().loop;
}

static VALUE call_original(VALUE argument)
{
    struct arguments *arguments = (struct arguments *)argument;
    return rb_call_super(arguments->argc, arguments->argv);
}

// Ruby may have refused (the Mutex is another's): the next kernel_sleep is no Mutex's. The block may have forked, and the
// child has no scheduler.
static VALUE forget_mutex(VALUE argument)
{
    (void)argument;
    struct loop *loop = current_loop();
    if (loop) loop->releasing_mutex = false;
    return Qnil;
}

// Tells the hook kernel_sleep who calls it, and raises what the wait for the Mutex has held up.
static VALUE sleep_and_relock(int argc, VALUE *argv)
{
    struct loop *loop = current_loop();
    if (!loop) return rb_call_super(argc, argv);
    struct arguments arguments = {argc, argv};
    loop->releasing_mutex = true;
    VALUE value = rb_ensure(call_original, (VALUE)&arguments, forget_mutex, Qnil);
    if ((loop = current_loop())) task_raise_deferred(task_of_owner(loop->owner));
    return value;
}

// To be prepended to Thread::Mutex …
static VALUE mutex_sleep(int argc, VALUE *argv, VALUE self)
{
    (void)self;
    return sleep_and_relock(argc, argv);
}

// … and to Thread::ConditionVariable where that does not call Mutex#sleep.
static VALUE condition_wait(int argc, VALUE *argv, VALUE self)
{
    (void)self;
    return sleep_and_relock(argc, argv);
}

void Init_heddle_relock(void)
{
    VALUE relock = rb_define_module_under(heddle_module, "Relock");
    rb_define_method(relock, "sleep", mutex_sleep, -1);
    rb_define_method(rb_define_module_under(relock, "Condition"), "wait", condition_wait, -1);
    rb_funcall(heddle_module, rb_intern("private_constant"), 1, ID2SYM(rb_intern("Relock")));
}
