// Called once, when the extension is loaded. Each function defines the Ruby methods of one file of this room.
#ifndef HEDDLE_SCHEDULER_BINDINGS_H
#define HEDDLE_SCHEDULER_BINDINGS_H

#include <ruby.h>
#include <stdbool.h>

void Init_heddle_busy_wait(void);
void Init_heddle_deadline_methods(void);
void Init_heddle_gate(void);
void Init_heddle_process(void);
void Init_heddle_scheduler(void);
void Init_heddle_task_class(void);
void Init_heddle_timeout(void);
void error_kept_define(void);
void guests_define(VALUE scheduler_class);
void hooks_define(VALUE scheduler_class);
void hooks_io_define(VALUE scheduler_class);
void installed_define(VALUE scheduler_class);
void io_close_define(void);
void io_select_define(VALUE scheduler_class);
void lives_define(VALUE klass);
void socket_methods_define(void);
void statistics_define(VALUE scheduler_class);
void task_view_define(VALUE task_class);

// Returns whether Scheduler.equip has prepared this class itself; not a class that inherits from it, whose hooks may be
// its own.
bool equipped(VALUE klass);

// Async's rule for a fiber outside of all tasks that waits for ever: switches to the fiber that made the scheduler,
// which had switched to this one. Returns false if it has not.
struct loop;
bool guests_leave_root(struct loop *loop);

#endif
