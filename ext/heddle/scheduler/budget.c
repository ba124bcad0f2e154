#include "budget.h"

#include "deadline_scope.h"
#include "gvl.h"
#include "scheduler/scheduler.h"
#include "shims.h"

// Not within a loop of ours.
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
    VALUE scheduler = rb_fiber_scheduler_current();
    if (scheduler_loop(scheduler)) {
        loop_spend(scheduler_entered(scheduler), bytes);
    } else if (gvl_spend(bytes)) {
        let_others(scheduler);
    } else if (NIL_P(scheduler)) {
        rb_thread_check_ints();
    }
}

void budget_give_way(void)
{
    VALUE scheduler = rb_fiber_scheduler_current();
    if (scheduler_loop(scheduler)) {
        loop_yield(scheduler_entered(scheduler));
    } else {
        let_others(scheduler);
    }
}
