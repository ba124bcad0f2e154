// Called once, when the extension is loaded. Each function defines the Ruby methods of one file of this room.
#ifndef HEDDLE_TASK_BINDINGS_H
#define HEDDLE_TASK_BINDINGS_H

#include <ruby.h>

void Init_heddle_current(void);
void Init_heddle_foreign(void);
void Init_heddle_relock(void);
void Init_heddle_run(void);
void Init_heddle_task_end(void);
void Init_heddle_task_run(void);
void Init_heddle_carrier(void);
void spawn_define(VALUE task_class);

#endif
