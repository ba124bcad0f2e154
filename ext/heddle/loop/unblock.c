// Wakes blocked fibers.
#include "loop/internals.h"

#include "loop/pending_wakeup.h"
#include "loop/wake.h"

static bool unblock_parked(struct loop *loop, VALUE fiber)
{
    // All waits of that fiber, since a trap handler may wait inside another wait. Spurious wake-ups are allowed.
    uint32_t from = FIBER_INDEX_START;
    bool found = false;
    for (struct loop_wait *wait; (wait = fiber_index_next(&loop->blocked, fiber, &from)); found = true) {
        wait->completed = true;
        loop_wake(loop, wait);
    }
    if (found && loop->poller.wakeup) wakeup_nudge(loop->poller.wakeup);
    return found;
}

void loop_unblock(struct loop *loop, VALUE fiber)
{
    if (!unblock_parked(loop, fiber)) pending_wakeup_keep(loop, fiber);
}

void loop_unblock_parked(struct loop *loop, VALUE fiber)
{
    unblock_parked(loop, fiber);
}
