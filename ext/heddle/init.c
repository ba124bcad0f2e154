// The roof of the extension: defines all classes and methods, once, when the extension is loaded.
#include "heddle.h"

#include <ruby/version.h>

// The function Init_heddle_… of each file that has one, in order: what counts forks comes after fork, and a class
// before the files that define methods in it (Task, the stream). Nothing else calls them: no header declares them.
// clang-format off
#define EACH(function) \
    function(fork) function(thread_label) function(main_ractor) function(gvl) function(scope) function(scope_error) \
    function(scope_fiber) function(other_scheduler_scope) function(background_thread) function(thread_scope) \
    function(deadline_methods) function(timeout) function(callers) function(pending_wakeup) function(deferred) \
    function(trap_handlers) function(reacquire) function(scheduler) function(external_tasks) function(worker_fiber) \
    function(current) function(task_end) function(task_run) function(task_class) function(run) function(event_count) \
    function(pools) function(semaphore) function(resource_pool) function(process) function(metrics) function(trace) \
    function(stalls) function(other_scheduler) function(names) function(socket_object) function(connect_filter) \
    function(connect) function(socket_guard) function(busy_wait) function(stream) function(net_http) \
    function(memcached) function(row_hashes) function(db) function(multiplexer) function(shared_statement) \
    function(mysql) function(postgresql) function(sqlite) function(simulation) function(insight)
// clang-format on

#define DECLARE(name) void Init_heddle_##name(void);
EACH(DECLARE)

// Code that was compiled for one minor version of Ruby may load in another, and crashes there. This text is what
// rakelib/native_library.rb looks for.
#define COMPILED_FOR "compiled for Ruby " STRINGIZE(RUBY_API_VERSION_MAJOR) "." STRINGIZE(RUBY_API_VERSION_MINOR)

static void check_version(void)
{
    if (ruby_api_version[0] == RUBY_API_VERSION_MAJOR && ruby_api_version[1] == RUBY_API_VERSION_MINOR) return;
    rb_raise(rb_eLoadError, "heddle.so is " COMPILED_FOR ", and this is Ruby %d.%d", ruby_api_version[0],
             ruby_api_version[1]);
}

RUBY_FUNC_EXPORTED void Init_heddle(void)
{
    check_version();
    heddle_define();
#define CALL(name) Init_heddle_##name();
    EACH(CALL)
}
