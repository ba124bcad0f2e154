#include "loop/all_loops.h"

void all_loops_measure(unsigned bits, bool on)
{
    if (on && bits & MEASURE_TIMES) {
        for (struct loop *loop = loops_first(); loop; loop = loop->next_live)
            measuring_allocate(loop);
    }
    measuring_want(bits, on);
    for (struct loop *loop = loops_first(); loop; loop = loop->next_live)
        measuring_set_one(loop, bits, on);
}

void all_loops_sum(struct loop_statistics *statistics, struct loop_times *times)
{
    measuring_past(statistics, times);
    for (struct loop *loop = loops_first(); loop; loop = loop->next_live)
        measuring_add(loop, statistics, times);
}
