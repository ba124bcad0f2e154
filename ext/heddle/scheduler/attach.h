// Setting a scheduler on its thread for a block: that of a run, which is closed then, and that of a pool with a loop of its own,
// which goes on the next time.
#ifndef HEDDLE_SCHEDULER_ATTACH_H
#define HEDDLE_SCHEDULER_ATTACH_H

#include <ruby.h>

// Calls `body` with the scheduler set on this thread, which has none; afterwards it has none again, and what is scheduled
// stays as it is. When the thread ends, what is scheduled then is cancelled.
VALUE scheduler_attached(VALUE scheduler, VALUE (*body)(VALUE), VALUE argument);

#endif
