#include "heddle.h"

#include "db/bindings.h"
#include "gvl.h"
#include "loop/bindings.h"
#include "memcached/bindings.h"
#include "mysql/bindings.h"
#include "postgresql/bindings.h"
#include "names/bindings.h"
#include "net_http/bindings.h"
#include "os/bindings.h"
#include "os/fork.h"
#include "row_hashes.h"
#include "scheduler/bindings.h"
#include "scope/bindings.h"
#include "simulation/bindings.h"
#include "sqlite/bindings.h"
#include "stream/bindings.h"
#include "sync/bindings.h"
#include "task/bindings.h"

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

RUBY_FUNC_EXPORTED void Init_heddle(void)
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

    fork_watch();
    Init_heddle_main_ractor();
    Init_heddle_gvl();
    Init_heddle_scope();
    Init_heddle_scope_block();
    Init_heddle_current();
    Init_heddle_scope_fiber();
    Init_heddle_own_thread();
    Init_heddle_thread_scope();
    Init_heddle_deadline_methods();
    Init_heddle_timeout();
    Init_heddle_callers();
    Init_heddle_early_wake();
    Init_heddle_deferred();
    Init_heddle_trap_handlers();
    Init_heddle_relock();
    Init_heddle_scheduler();
    Init_heddle_carrier();
    Init_heddle_task_run();
    Init_heddle_task_class();
    Init_heddle_run();
    Init_heddle_gate();
    Init_heddle_semaphore();
    Init_heddle_resource_pool();
    Init_heddle_process();
    Init_heddle_fork();
    Init_heddle_foreign();
    Init_heddle_names();
    Init_heddle_socket_object();
    Init_heddle_connect_filter();
    Init_heddle_connect();
    Init_heddle_socket_guard();
    Init_heddle_busy_wait();
    Init_heddle_stream();
    Init_heddle_net_http();
    Init_heddle_memcached();
    Init_heddle_row_hashes();
    Init_heddle_db();
    Init_heddle_mysql();
    Init_heddle_postgresql();
    Init_heddle_sqlite();
    Init_heddle_simulation();
}
