// The function that defines the Ruby methods of this room; called once, when the extension is loaded.
#ifndef HEDDLE_POSTGRESQL_BINDINGS_H
#define HEDDLE_POSTGRESQL_BINDINGS_H

#include <ruby.h>

void Init_heddle_postgresql(void);

#endif
