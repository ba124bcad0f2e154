#include "loop/pending_wakeup.h"

#include "loop/callers.h"
#include "loop/loop.h"

// An instance variable of the fiber, hidden because its name has no @. The variable dies with the fiber, so that
// another fiber at the same address cannot inherit it. Its value names the loop that counts the pending wakeup: a
// thread's root fiber outlives its loops.
static ID id_pending_wakeup;

VALUE pending_wakeup_name(void)
{
    static long loops;
    return LONG2FIX(++loops);
}

static bool has_pending_wakeup(const struct loop *loop, VALUE fiber)
{
    return rb_attr_get(fiber, id_pending_wakeup) == loop->pending_wakeup_name;
}

void pending_wakeup_keep(struct loop *loop, VALUE fiber)
{
    if (!RTEST(rb_obj_is_fiber(fiber)) || !RTEST(rb_fiber_alive_p(fiber))) return;
    if (RB_OBJ_FROZEN(fiber) || has_pending_wakeup(loop, fiber)) return;
    rb_ivar_set(fiber, id_pending_wakeup, loop->pending_wakeup_name);
    loop->pending_wakeups++;
}

bool pending_wakeup_take(struct loop *loop, VALUE fiber)
{
    if (!has_pending_wakeup(loop, fiber)) return false;
    rb_ivar_set(fiber, id_pending_wakeup, Qfalse); // does not allocate: the variable exists
    if (loop->pending_wakeups) loop->pending_wakeups--;
    return true;
}

// A spurious wake-up must not end a wait for a living thread: Thread#join of Ruby 3.3 takes it for the end of its
// limit, even without a limit, and returns nil.
static bool waits_for_thread(const struct loop_wait *wait)
{
    return wait->kind == WAIT_BLOCK && wait->blocker && rb_obj_is_kind_of(wait->blocker, rb_cThread) == Qtrue &&
           RTEST(rb_funcall(wait->blocker, rb_intern("alive?"), 0));
}

bool pending_wakeup_ends(struct loop *loop, const struct loop_wait *wait)
{
    if (wait->kind > WAIT_SLEEP) return false;
    while (has_pending_wakeup(loop, wait->fiber)) {
        if (wait->kind == WAIT_SLEEP && called_by_kernel_sleep()) return false;
        pending_wakeup_take(loop, wait->fiber);
        if (!waits_for_thread(wait)) return true;
    }
    return false;
}

void Init_heddle_pending_wakeup(void)
{
    id_pending_wakeup = rb_intern("__heddle_pending_wakeup__");
}
