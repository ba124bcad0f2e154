#include "scope/scope.h"

#include "cancel/scope_fiber.h"
#include "loop/interrupt.h"
#include "loop/context.h"
#include "scope/other_scheduler_scope.h"
#include "scope/thread_scope.h"
#include "shims.h"

// ---- which chain

// NULL if the thread's own chain applies.
static struct scope_chain *chain_of_fiber(void)
{
    struct context context = context_of_thread();
    if (NIL_P(context.scheduler)) return NULL;
    if (context.loop && context.loop->thread == rb_thread_current()) return context.loop->owner->chain;
    return !context.loop && RTEST(rb_fiber_scheduler_current()) ? other_scheduler_chain() : NULL;
}

struct scope_chain *scope_chain_current(void)
{
    struct scope_chain *chain = chain_of_fiber();
    return chain ? chain : thread_scope_chain(rb_thread_current());
}

// NULL if no scope can be in force.
static struct scope_chain *chain_with_scopes(void)
{
    struct scope_chain *chain = chain_of_fiber();
    return chain || !thread_scopes_open() ? chain : thread_scope_chain(rb_thread_current());
}

// ---- opening and closing

// Closes scopes whose fiber is gone, so that they neither pile up nor keep the helper busy.
static void close_abandoned(struct scope_chain *chain)
{
    for (struct scope *scope = chain->innermost, *outer; scope; scope = outer) {
        outer = scope->outer;
        if (scope->other_fiber && scope_abandoned(scope)) scope_close(scope);
    }
}

void scope_open(struct scope *scope, struct scope_chain *chain, deadline_t at)
{
    scope->at = at;
    scope_note_fiber(scope, chain);
    if (scope->other_fiber) close_abandoned(chain);
    if (chain->thread) thread_scope_arm(scope, chain);
    scope_link(scope, chain);
    if (!chain->thread && !chain->owner) other_scheduler_scope_opened(scope);
}

void scope_close(struct scope *scope)
{
    const struct scope_chain *chain = scope->chain;
    if (!chain) return;
    if (chain->thread) {
        thread_scope_close(scope);
        return;
    }
    if (chain->owner) timer_cancel(&chain->owner->loop->timers, &scope->timer);
    scope_unlink(scope);
    if (!chain->owner) other_scheduler_scope_closed(scope);
}

void scope_move(struct scope *scope, deadline_t at)
{
    struct scope_chain *chain = scope->chain;
    if (!chain || scope->expired) return;
    if (chain->thread) thread_scope_disarm(scope);
    if (chain->owner) timer_cancel(&chain->owner->loop->timers, &scope->timer);
    scope_set_end(scope, at);
    if (chain->thread) thread_scope_arm(scope, chain);
    // At once: owner_arm_deadlines takes a scope outside of one with a timer to have its own.
    if (chain->owner && at != DEADLINE_NEVER) owner_arm_scope(scope);
}

void scope_close_all(struct scope_chain *chain)
{
    while (chain->innermost)
        scope_close(chain->innermost);
}

// ---- what binds the running code

bool scopes_open(void)
{
    return chain_with_scopes();
}

deadline_t deadline_in_force(void)
{
    const struct scope_chain *chain = chain_with_scopes();
    return chain ? scope_in_force(chain) : DEADLINE_NEVER;
}

void deadline_check(void)
{
    struct scope_chain *chain = chain_with_scopes();
    if (!chain) return;
    if (chain->owner) owner_raise_pending(chain->owner);
    struct scope *due = scope_due(chain, deadline_now());
    if (due) scope_raise(due);
}

void deadline_refuse_late(void)
{
    if (deadline_in_force() <= deadline_now()) deadline_check();
}

void deadline_joined(VALUE error)
{
    VALUE of = scope_that_raised(error);
    if (NIL_P(of) || !scope_of(of)->inherited) return;
    const struct scope_chain *chain = chain_with_scopes();
    struct scope *due = chain ? scope_due(chain, deadline_now()) : NULL;
    if (due && due->kind != SCOPE_TIMEOUT) scope_failed_in_task(due, error);
}

// ---- filters

static bool filters_kept; // by a thread's chain, which may have no scopes

VALUE scope_filters_in_force(void)
{
    const struct scope_chain *chain = filters_kept ? scope_chain_current() : chain_with_scopes();
    return chain ? scope_filters(chain) : 0;
}

void scope_keep_filters(VALUE filters)
{
    scope_chain_current()->filters = filters;
    filters_kept = true;
}
