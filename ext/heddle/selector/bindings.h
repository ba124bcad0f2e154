// Called once, when the extension is loaded. Each function defines the Ruby methods of one file of this room.
#ifndef HEDDLE_SELECTOR_BINDINGS_H
#define HEDDLE_SELECTOR_BINDINGS_H

#include <ruby.h>

void Init_heddle_selector(void);
void selector_turns_define(VALUE selector_class);
void selector_io_define(VALUE selector_class);
void selector_process_define(VALUE selector_class);

#endif
