// Sets a scheduler on its thread for a block: a run's scheduler, which is closed afterwards, or the scheduler of a pool
// with its own loop, which continues the next time.
#ifndef HEDDLE_SCHEDULER_ATTACH_H
#define HEDDLE_SCHEDULER_ATTACH_H

#include <ruby.h>

// Calls `body` with the scheduler set on this thread, which must have none. Afterwards the thread has none again, and
// the tasks stay as they are. Tasks that have not ended when the thread ends are cancelled.
VALUE scheduler_attached(VALUE scheduler, VALUE (*body)(VALUE), VALUE argument);

#endif
