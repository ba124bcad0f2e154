// What concerns all loops of the process at once.
#ifndef HEDDLE_LOOP_ALL_LOOPS_H
#define HEDDLE_LOOP_ALL_LOOPS_H

#include "loop/loop.h"

// Sets or clears bits of measuring.h in all loops of this process, and in those that start later. Raises NoMemoryError
// before anything has changed.
void all_loops_measure(unsigned bits, bool on);

// Adds up what all loops of this process have counted, also those that have closed: no number ever falls.
void all_loops_sum(struct loop_statistics *statistics, struct loop_times *times);

#endif
