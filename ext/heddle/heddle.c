#include "heddle.h"

VALUE heddle_module;
VALUE heddle_cFiber, heddle_cScheduler, heddle_mLoop, heddle_cTask;
VALUE heddle_eCancellation, heddle_eDeadlineExceeded, heddle_eTaskCancelled, heddle_eSchedulerMissing,
    heddle_eSchedulerClosed;
VALUE heddle_eWrongThread, heddle_eLimitReached, heddle_eBackendUnavailable;

bool is_exception(VALUE errinfo)
{
    return !RB_SPECIAL_CONST_P(errinfo) && RB_BUILTIN_TYPE(errinfo) != T_IMEMO &&
           RTEST(rb_obj_is_kind_of(errinfo, rb_eException));
}

VALUE yield_nothing(VALUE unused)
{
    (void)unused;
    return rb_yield_values(0);
}

static VALUE error_class(const char *name)
{
    VALUE klass = rb_const_get(heddle_module, rb_intern(name));
    rb_gc_register_mark_object(klass);
    return klass;
}

void heddle_define(void)
{
    heddle_module = rb_define_module("Heddle");
    rb_gc_register_mark_object(heddle_module);
    heddle_cFiber = rb_path2class("Fiber");
    rb_gc_register_mark_object(heddle_cFiber);
    heddle_cScheduler = rb_define_class_under(heddle_module, "Scheduler", rb_cObject);
    rb_gc_register_mark_object(heddle_cScheduler);
    heddle_mLoop = rb_define_module_under(heddle_module, "Loop");
    rb_gc_register_mark_object(heddle_mLoop);
    heddle_cTask = rb_define_class_under(heddle_module, "Task", rb_cObject);
    rb_gc_register_mark_object(heddle_cTask);
    heddle_eCancellation = error_class("Cancellation");
    heddle_eDeadlineExceeded = error_class("DeadlineExceeded");
    heddle_eTaskCancelled = error_class("TaskCancelled");
    heddle_eSchedulerMissing = error_class("SchedulerMissing");
    heddle_eSchedulerClosed = error_class("SchedulerClosed");
    heddle_eWrongThread = error_class("WrongThread");
    heddle_eLimitReached = error_class("LimitReached");
    heddle_eBackendUnavailable = error_class("BackendUnavailable");
}
