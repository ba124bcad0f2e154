#include "os/budget.h"

#include "os/deadline.h"
#include "os/gvl.h"
#include "loop/park.h"
#include "loop/without_wait.h"
#include "scope/deadline_scope.h"
#include "shims.h"
#include "task/current.h"

#include <ruby/thread.h>

// Nanoseconds between two turns of other threads. A CPU-bound one takes the 100 ms of a quantum.
static const int64_t TURN = 10000000;
// … and until a thread that waits for the GVL has woken up.
static const int64_t WAKE_UP = 50000;

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

static void *stay_without_gvl(void *done)
{
    if (SHIM_GVL_BARGES) gvl_poll(NULL, 0, WAKE_UP);
    return done;
}

// A loop that always has a fiber to run never sleeps, and C code never comes to the end of Ruby's time slice: other
// threads would wait for as long as it lasts. The release raises nothing. Ruby refuses it when an interrupt is due, or
// the time slice over: then the loop delivers that, in a wait that is none.
static void let_threads(struct loop *loop)
{
    static _Thread_local deadline_t released;
    deadline_t now = deadline_now();
    if (now - released < TURN || deadline_simulated()) return;
    bool done = false;
    if (!rb_thread_call_without_gvl2(stay_without_gvl, &done, NULL, NULL)) loop_sleep(loop, 1);
    released = deadline_now();
}

void budget_give_way(void)
{
    struct context context = context_of_fiber();
    if (context.loop) {
        loop_enter(context.loop);
        loop_yield(context.loop);
        let_threads(context.loop);
    } else {
        let_others(context.scheduler);
    }
}
