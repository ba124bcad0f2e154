// Waiting for descriptors in a plain thread, within the deadline in force.
#ifndef HEDDLE_SCOPE_THREAD_WAIT_H
#define HEDDLE_SCOPE_THREAD_WAIT_H

#include "gvl.h"

// As gvl_wait, until the instant `until`, or until the deadline in force where that comes first: the next call raises it
// then. A deadline that has passed is raised before anything is looked at: a peer may always be there in time for a look.
int thread_wait(struct gvl_wait *wait, deadline_t until);

#endif
