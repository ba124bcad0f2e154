// Called once, when the extension is loaded. Each function defines the Ruby methods of one file of this room.
#ifndef HEDDLE_NAMES_BINDINGS_H
#define HEDDLE_NAMES_BINDINGS_H

#include <ruby.h>

void Init_heddle_connect(void);
void Init_heddle_connect_filter(void);
void Init_heddle_names(void);

#endif
