// Called once, when the extension is loaded. Each function defines the Ruby methods of one file of this room.
#ifndef HEDDLE_MEMCACHED_BINDINGS_H
#define HEDDLE_MEMCACHED_BINDINGS_H

#include <ruby.h>

void Init_heddle_memcached(void);

#endif
