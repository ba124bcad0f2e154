#include "os/budget.h"

#include "os/gvl.h"
#include "loop/park.h"
#include "loop/without_wait.h"
#include "scope/deadline_scope.h"
#include "shims.h"
#include "task/current.h"

// For fibers of another scheduler and for plain threads.
static void let_others(VALUE scheduler)
{
    deadline_check();
    if (NIL_P(scheduler)) {
        rb_thread_check_ints();
    } else {
        rb_fiber_scheduler_kernel_sleep(scheduler, INT2FIX(0));
    }
}

void budget_spend(size_t bytes)
{
    struct context context = context_of_fiber();
    if (context.loop) {
        loop_enter(context.loop);
        loop_spend(context.loop, bytes);
    } else if (gvl_spend(bytes)) {
        let_others(context.scheduler);
    } else if (NIL_P(context.scheduler)) {
        rb_thread_check_ints();
    }
}

void budget_give_way(void)
{
    struct context context = context_of_fiber();
    if (context.loop) {
        loop_enter(context.loop);
        loop_yield(context.loop);
    } else {
        let_others(context.scheduler);
    }
}
