// Called once, when the extension is loaded. Each function defines the Ruby methods of one file of this room.
#ifndef HEDDLE_SCOPE_BINDINGS_H
#define HEDDLE_SCOPE_BINDINGS_H

#include <ruby.h>

void Init_heddle_foreign_scope(void);
void Init_heddle_thread_scope(void);

#endif
