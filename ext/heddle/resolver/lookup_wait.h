// Waits for descriptors and look-ups: in the running fiber of a loop or, without a loop, in the calling thread.
#ifndef HEDDLE_RESOLVER_LOOKUP_WAIT_H
#define HEDDLE_RESOLVER_LOOKUP_WAIT_H

#include "loop/loop.h"
#include "resolver/resolver.h"

#include <poll.h>

struct lookup_wait {
    struct loop *loop;  // NULL in a plain thread …
    struct wakeup *own; // … which makes a wakeup of its own with its first look-up
};

enum { LOOKUP_WAIT_MOST = 2 }; // look-ups at once

// Starts the look-up. Raises SystemCallError if a plain thread has no descriptor left for it.
void lookup_wait_submit(struct lookup_wait *waiter, struct lookup *lookup);

// Waits until a descriptor is ready, a look-up has its answer or the span is over. May return early, and raises what is
// pending for the task or thread. `descriptors` has room for one entry more than `count`. NULLs in `lookups` are
// skipped.
void lookup_wait_any(struct lookup_wait *waiter, struct pollfd *descriptors, size_t count, int64_t span,
                     struct lookup *lookups[LOOKUP_WAIT_MOST]);

// End the look-ups before this call.
void lookup_wait_close(struct lookup_wait *waiter);

#endif
