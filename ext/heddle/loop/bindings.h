// Called once, when the extension is loaded. Each function defines the Ruby methods of one file of this room.
#ifndef HEDDLE_LOOP_BINDINGS_H
#define HEDDLE_LOOP_BINDINGS_H

#include <ruby.h>

void Init_heddle_callers(void);
void Init_heddle_early_wake(void);
void Init_heddle_deferred(void);

#endif
