// The pools, semaphores and connections of databases of the main Ractor, for reports. They are not kept alive by it.
#ifndef HEDDLE_SYNC_POOLS_H
#define HEDDLE_SYNC_POOLS_H

#include "heddle.h"

// Raises NoMemoryError.
void pools_add(VALUE pool);

#endif
