// Waiting for descriptors and look-ups: in the running fiber of a loop or, without a loop, in the calling thread.
#ifndef HEDDLE_NAMES_LOOKUP_WAIT_H
#define HEDDLE_NAMES_LOOKUP_WAIT_H

#include "loop/loop.h"
#include "names/resolver.h"

#include <poll.h>

struct lookup_wait {
    struct loop *loop;  // NULL in a plain thread …
    struct wakeup *own; // … which has one of its own, once it has asked for a name
};

enum { LOOKUP_WAIT_MOST = 2 }; // at most, at once

// Begins the look-up. Raises SystemCallError when a thread has no descriptor left for it.
void lookup_wait_submit(struct lookup_wait *waiter, struct lookup *lookup);

// Until one of the descriptors is ready, a look-up has its answer or the span is over; may come back early, and raises what
// is sent to the task or the thread. `descriptors` has room for one more than `count`. NULLs among the look-ups are passed over.
void lookup_wait_any(struct lookup_wait *waiter, struct pollfd *descriptors, size_t count, int64_t span,
                     struct lookup *lookups[LOOKUP_WAIT_MOST]);

// The look-ups are to be ended before.
void lookup_wait_close(struct lookup_wait *waiter);

#endif
