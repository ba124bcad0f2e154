#include "loop/all_loops.h"

#include "loop/trace.h"

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

static VALUE attach_all(VALUE unused)
{
    for (struct loop *loop = loops_first(); loop; loop = loop->next_live)
        trace_attach(loop);
    return unused;
}

void all_loops_trace(struct trace *trace)
{
    trace_set_current(trace);
    measuring_want(MEASURE_TRACE, true);
    int state = 0;
    rb_protect(attach_all, Qnil, &state);
    for (struct loop *loop = loops_first(); loop; loop = loop->next_live)
        measuring_set_one(loop, MEASURE_TRACE, true);
    if (!state) return;
    all_loops_trace_end();
    rb_jump_tag(state);
}

struct ending {
    struct loop *loop;
    deadline_t now;
};

static void end_wait(struct loop_wait *wait, void *argument)
{
    const struct ending *ending = argument;
    if (!wait->measured || wait->kind == WAIT_IDLE) return;
    measure_trace_wait(ending->loop, wait, ending->now);
}

void all_loops_trace_end(void)
{
    measuring_want(MEASURE_TRACE, false);
    for (struct loop *loop = loops_first(); loop; loop = loop->next_live) {
        measuring_set_one(loop, MEASURE_TRACE, false);
        if (!loop->trace) continue;
        struct ending ending = {loop, deadline_now()};
        wait_slab_each(&loop->poller.waits, end_wait, &ending);
        loop->trace = NULL;
    }
    trace_set_current(NULL);
}
