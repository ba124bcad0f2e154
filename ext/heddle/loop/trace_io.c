#include "loop/trace_io.h"

void trace_io_put(struct loop *loop, int descriptor, ssize_t count, bool wrote)
{
    struct trace_event moved = {.at = deadline_now(),
                                .kind = TRACE_IO,
                                .what = wrote,
                                .task = loop->owner->number,
                                .first = count,
                                .descriptor = descriptor};
    trace_put(loop->trace, &moved, NULL, 0);
}
