// Operations that end without parking: how many of them a passed deadline allows, and when they yield to other fibers.
#include "loop/internals.h"

#include "os/budget.h"
#include "loop/interrupt.h"
#include "loop/park.h"
#include "loop/without_wait.h"

#include <sys/stat.h>
#include <unistd.h>

static bool budget_left(struct loop *loop, size_t bytes)
{
    loop->bytes_since_switch += bytes;
    return ++loop->since_switch < BUDGET_OPERATIONS && loop->bytes_since_switch < BUDGET_BYTES;
}

void loop_spend(struct loop *loop, size_t bytes)
{
    if (budget_left(loop, bytes)) return;
    poll_if_late(loop);
    loop_yield(loop);
}

// Regular files and block devices are always ready: no peer decides whether the task waits for them.
static bool never_waits(int descriptor)
{
    struct stat status;
    return descriptor >= 0 && fstat(descriptor, &status) == 0 && (S_ISREG(status.st_mode) || S_ISBLK(status.st_mode));
}

void loop_check_pending(struct loop *loop, int descriptor)
{
    struct wait_owner *owner = loop->owner;
    if (!owner->cancel_pending && !owner->chain->innermost) return;
    if (!owner_interrupted(owner)) {
        owner->grace_used = 0;
    } else if (owner->grace_used < PENDING_GRACE) {
        owner->grace_used++;
    } else if (!never_waits(descriptor)) {
        owner_raise_pending(owner);
    }
}

void loop_check_pending_start(struct loop *loop)
{
    owner_raise_cancellation(loop->owner);
    loop_check_pending(loop, -1);
}

void loop_yield_if_spent(struct loop *loop, size_t bytes)
{
    if (budget_left(loop, bytes)) return;
    poll_if_late(loop);
    if (!loop->ready.head && !poll_due(loop)) {
        loop->since_poll++;
        return;
    }
    park_ready((struct parking){.loop = loop, .span = DEADLINE_NEVER, .keeps_result = true});
}

void loop_yield_if_spent_after(struct loop *loop, int descriptor, size_t bytes)
{
    // In a simulation a `require`, which only the first run does, and a line on stderr must not move the rest.
    if (deadline_simulated() && (descriptor <= STDERR_FILENO || never_waits(descriptor))) return;
    loop_yield_if_spent(loop, bytes);
}

void loop_use_budget(struct loop *loop)
{
    loop_check_pending(loop, -1);
    loop_yield_if_spent(loop, 0);
}
