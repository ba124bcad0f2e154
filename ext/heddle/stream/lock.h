// Waiting for a descriptor in a plain thread, and what it costs to give up the GVL for it: nothing when no other thread
// wants it, the 100 ms of a quantum beside one that computes. Where regaining it was slow, the next waits look for a reply
// that is nearly there while they hold it.
#ifndef HEDDLE_STREAM_LOCK_H
#define HEDDLE_STREAM_LOCK_H

#include "deadline.h"

struct lock_poll {
    int descriptor;
    short events;
    short revents; // as they answer what was asked
    int found;     // 1, 0 (not yet), or -errno
};

// Looks at the descriptor with the GVL held, for 200 microseconds at most and not longer than `span`; only where that is
// worth while, or with a span of 0. Returns whether it looked.
bool lock_look(struct lock_poll *poll, int64_t span);

// Waits up to `span` nanoseconds without the GVL. Interrupts are raised; IO#close in another thread ends it.
void lock_poll_without(struct lock_poll *poll, VALUE io, int64_t span);

// Whether to look at all: true unless it was switched off.
extern bool lock_looking;

// Whether regaining it was slow lately.
bool lock_contended(void);

#endif
