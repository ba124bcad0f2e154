// The roof of the extension: defines all classes and methods, once, when the extension is loaded. A class comes before
// the files that define methods in it (Task, the stream), and fork_watch before all that counts forks.
#include "heddle.h"

#include "cancel/bindings.h"
#include "db/bindings.h"
#include "gvl.h"
#include "loop/bindings.h"
#include "memcached/bindings.h"
#include "mysql/bindings.h"
#include "names/bindings.h"
#include "net_http/bindings.h"
#include "os/bindings.h"
#include "os/fork.h"
#include "postgresql/bindings.h"
#include "row_hashes.h"
#include "scheduler/bindings.h"
#include "scope/bindings.h"
#include "simulation/bindings.h"
#include "sqlite/bindings.h"
#include "stream/bindings.h"
#include "sync/bindings.h"
#include "task/bindings.h"

RUBY_FUNC_EXPORTED void Init_heddle(void)
{
    heddle_define();
    fork_watch();
    Init_heddle_main_ractor();
    Init_heddle_gvl();
    Init_heddle_scope();
    Init_heddle_scope_error();
    Init_heddle_scope_fiber();
    Init_heddle_foreign_scope();
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
    Init_heddle_current();
    Init_heddle_task_end();
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
