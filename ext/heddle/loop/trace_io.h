// Bytes that a task moves, in the trace of its loop.
#ifndef HEDDLE_LOOP_TRACE_IO_H
#define HEDDLE_LOOP_TRACE_IO_H

#include "loop/context.h"
#include "loop/trace.h"

#include <sys/types.h>

// Puts an event for a call that has moved `count` bytes, or ended with -errno. The loop has a trace.
void trace_io_put(struct loop *loop, int descriptor, ssize_t count, bool wrote);

static inline void trace_io(struct loop *loop, int descriptor, ssize_t count, bool wrote)
{
    if (loop->trace) trace_io_put(loop, descriptor, count, wrote);
}

// For code that does not know its loop, or whether it runs in one.
static inline void trace_io_of_thread(int descriptor, ssize_t count, bool wrote)
{
    struct loop *loop = trace_current() ? context_of_thread().loop : NULL;
    if (loop) trace_io(loop, descriptor, count, wrote);
}

#endif
