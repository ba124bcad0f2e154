// What concerns all loops of the process at once.
#ifndef HEDDLE_LOOP_ALL_LOOPS_H
#define HEDDLE_LOOP_ALL_LOOPS_H

#include "loop/loop.h"

// Sets or clears bits of measuring.h in all loops of this process, and in those that start later. Raises NoMemoryError
// before anything has changed.
void all_loops_measure(unsigned bits, bool on);

// All loops write into the trace from now on, also those that start later. May raise NoMemoryError; then none does.
struct trace;
void all_loops_trace(struct trace *trace);

// The loops put what still waits into the trace, and no longer know it.
void all_loops_trace_end(void);

// Adds up what all loops of this process have counted, also those that have closed: no number ever falls.
void all_loops_sum(struct loop_statistics *statistics, struct loop_times *times);

#endif
