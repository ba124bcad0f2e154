// Called once, when the extension is loaded. Each function defines the Ruby methods of one file of this room.
#ifndef HEDDLE_SYNC_BINDINGS_H
#define HEDDLE_SYNC_BINDINGS_H

#include <ruby.h>

void Init_heddle_semaphore(void);
void Init_heddle_resource_pool(void);

#endif
