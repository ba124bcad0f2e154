// The function that defines the Ruby methods of this room; called once, when the extension is loaded.
#ifndef HEDDLE_DB_BINDINGS_H
#define HEDDLE_DB_BINDINGS_H

#include <ruby.h>

void Init_heddle_db(void);

#endif
