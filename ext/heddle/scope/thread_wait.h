// Waits for descriptors in a plain thread, within the deadline in force.
#ifndef HEDDLE_SCOPE_THREAD_WAIT_H
#define HEDDLE_SCOPE_THREAD_WAIT_H

#include "os/gvl.h"

// Like gvl_wait, until the instant `until` or the deadline in force, whichever comes first: the next call then raises
// the deadline. Raises a passed deadline before polling: a peer may always answer in time for a poll.
int thread_wait(struct gvl_wait *wait, deadline_t until);

#endif
