#include "scope/thread_wait.h"

#include "scope/deadline_scope.h"

int thread_wait(struct gvl_wait *wait, deadline_t until)
{
    deadline_t in_force = deadline_in_force();
    if (in_force == DEADLINE_NEVER && until == DEADLINE_NEVER) return gvl_wait(wait, DEADLINE_NEVER);
    deadline_t now = deadline_now();
    if (in_force <= now) deadline_check();
    deadline_t end = in_force < until ? in_force : until;
    return gvl_wait(wait, end > now ? end - now : 0);
}
