// Events of a loop for Heddle.trace: a ring in memory, which the loop fills and a native thread empties
// (insight/trace_file.c). The loop never waits for it: what finds no room is counted as lost.
//
// Whoever puts an event has the GVL, so one at a time does. The rings belong to the trace. At its end no loop has a
// ring any more before the first is freed (all_loops_trace_end). A loop that closes leaves its ring to the native
// thread, which gives it to another loop once it is empty: a server may have thousands of loops, one after the other.
#ifndef HEDDLE_LOOP_TRACE_H
#define HEDDLE_LOOP_TRACE_H

#include "os/deadline.h"
#include "os/fork.h"
#include "os/thread_label.h"

#include <stdatomic.h>

struct loop;

enum trace_kind {
    TRACE_TURN,  // `task` ran from `at`, for `first` nanoseconds
    TRACE_WAKE,  // the wait of `task` that began at `first` ended; by task `second`, or 0
    TRACE_WAIT,  // `task` goes on after a wait of kind `what` that began at `first`, and ended at `second` or 0
    TRACE_POLL,  // a poll from `at`, for `first` nanoseconds; `what`: it was allowed to sleep
    TRACE_START, // `task` starts; `second`: the length of its name, whose bytes fill the next events
    TRACE_END,   // `task` has ended, with status `what`
    TRACE_IO     // `task` has moved `first` bytes, or -errno; `what`: it wrote
};

struct trace_event {
    deadline_t at;
    uint64_t task; // the owner's number
    int64_t first;
    uint64_t second;
    int32_t descriptor; // or -1
    uint8_t kind, what;
};

enum { TRACE_EVENTS = 1 << 18, TRACE_NAME = 120, TRACE_RINGS = 1024 };

enum trace_ring_state { RING_FREE, RING_USED, RING_LEFT };

struct trace_ring {
    struct trace_ring *next;
    _Atomic int state; // enum trace_ring_state; what is below belongs to the loop, and after RING_LEFT to the thread
    unsigned number;   // of the loop within the trace
    unsigned forks;
    char name[LABEL];         // of the loop's thread
    deadline_t left;          // when the loop closed
    _Atomic uint64_t lost;    // events
    _Atomic uint64_t written; // events, in all
    uint64_t room;            // `read`, when the loop looked last
    _Alignas(64) _Atomic uint64_t read;
    struct trace_event events[TRACE_EVENTS];
};

// The trace that is being written.
struct trace {
    _Atomic(struct trace_ring *) rings; // the newest first
    unsigned loops;                     // how many there were
    unsigned ring_count;                // TRACE_RINGS at most, however many loops end while the file is not written
    unsigned lost;                      // loops that got no ring
};

// The trace of this process, or NULL.
struct trace *trace_current(void);
void trace_set_current(struct trace *trace);

// Gives the loop a ring of the current trace, if there is one and it has one. May raise NoMemoryError.
void trace_attach(struct loop *loop);

// The loop closes.
void trace_leave(struct loop *loop);

// Puts an event, and behind it a name of `length` bytes.
void trace_put(struct trace_ring *ring, const struct trace_event *event, const char *name, size_t length);

#endif
