#include "task/current.h"

#include "shims.h"
#include "task/bindings.h"
#include "task/foreign.h"
#include "task/task_loop.h"

static struct place place_under(VALUE scheduler)
{
    return (struct place){.scheduler = scheduler, .loop = loop_of(scheduler)};
}

struct place place_of_fiber(void)
{
    return place_under(rb_fiber_scheduler_current());
}

struct place place_of_thread(void)
{
    return place_under(rb_fiber_scheduler_get());
}

struct task *task_current(void)
{
    struct loop *loop = place_of_thread().loop;
    if (!loop) return foreign_current_task();
    return loop->owner->self ? task_of_owner(loop->owner) : NULL;
}

// NULL if the thread's own chain applies.
static struct scope_chain *chain_of_fiber(void)
{
    struct place place = place_of_thread();
    if (NIL_P(place.scheduler)) return NULL;
    if (place.loop && place.loop->thread == rb_thread_current()) return task_of_owner(place.loop->owner)->chain;
    return !place.loop && RTEST(rb_fiber_scheduler_current()) ? foreign_chain() : NULL;
}

void Init_heddle_current(void)
{
    scope_chains_found_by(chain_of_fiber);
}
