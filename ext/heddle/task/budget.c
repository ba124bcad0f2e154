#include "os/budget.h"

#include "os/deadline.h"
#include "os/gvl.h"
#include "loop/park.h"
#include "loop/without_wait.h"
#include "scope/deadline_scope.h"
#include "shims.h"
#include "task/current.h"

// Nanoseconds between two turns of other threads. A CPU-bound one takes the 100 ms of a quantum.
static const int64_t TURN = 10000000;

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

// A loop that always has a fiber to run never sleeps, and C code never comes to the end of Ruby's time slice: other
// threads would wait for as long as it lasts.
static bool threads_due(void)
{
    static _Thread_local deadline_t last;
    if (deadline_simulated()) return false;
    deadline_t now = deadline_now();
    if (now - last < TURN) return false;
    last = now;
    return true;
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

void budget_give_way_to_all(void)
{
    struct context context = context_of_fiber();
    if (context.loop && threads_due()) {
        loop_enter(context.loop);
        loop_yield_to_threads(context.loop);
    } else {
        budget_give_way();
    }
}
