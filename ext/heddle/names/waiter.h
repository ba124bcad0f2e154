// Waiting for descriptors and look-ups: in the running fiber of a loop or, without a loop, in the calling thread.
#ifndef HEDDLE_NAMES_WAITER_H
#define HEDDLE_NAMES_WAITER_H

#include "loop/loop.h"
#include "names/resolver.h"

#include <poll.h>

struct waiter {
    struct loop *loop;  // NULL in a plain thread …
    struct wakeup *own; // … which has one of its own, once it has asked for a name
};

enum { WAITER_LOOKUPS = 2 }; // at most, at once

// Begins the look-up. Raises SystemCallError when a thread has no descriptor left for it.
void waiter_submit(struct waiter *waiter, struct lookup *lookup);

// Until one of the descriptors is ready, a look-up has its answer or the span is over; may come back early, and raises what
// is sent to the task or the thread. `descriptors` has room for one more than `count`. NULLs among the look-ups are passed over.
void waiter_wait(struct waiter *waiter, struct pollfd *descriptors, size_t count, int64_t span,
                 struct lookup *lookups[WAITER_LOOKUPS]);

// The look-ups are to be ended before.
void waiter_close(struct waiter *waiter);

#endif
