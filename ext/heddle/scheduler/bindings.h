// Called once, when the extension is loaded. Each function defines the Ruby methods of one file of this layer.
#ifndef HEDDLE_SCHEDULER_BINDINGS_H
#define HEDDLE_SCHEDULER_BINDINGS_H

#include <ruby.h>
#include <stdbool.h>

void error_kept_define(void);
void external_tasks_define(VALUE klass);
void hooks_io_define(VALUE scheduler_class);
void installed_define(VALUE scheduler_class);
void io_close_define(void);
void io_select_define(VALUE scheduler_class);
void socket_methods_define(void);
void statistics_define(VALUE scheduler_class);
void task_view_define(VALUE task_class);

// Async's rule for a fiber outside of all tasks that waits for ever: switches to the fiber that made the scheduler,
// which had switched to this one. Returns false if it has not.
struct loop;
bool external_tasks_leave_root(struct loop *loop);

#endif
