// A scope's block: what leaves it, and how the scope ends with it.
#include "scope/scope.h"

#include "scope/thread_scope.h"

bool deadline_raised(VALUE error)
{
    return !NIL_P(scope_that_raised(error));
}

struct crossing {
    struct scope *scope;
    VALUE (*body)(VALUE);
    VALUE argument;
    uint32_t uses;
    bool complete; // the body returned
};

// Returns whether the error belongs to a scope that is still open around this one, and is on its way there.
static bool belongs_outside(const struct scope *scope, VALUE error)
{
    VALUE of = scope_that_raised(error);
    if (of == scope->self) return true;
    for (const struct scope *outer = scope->outer; outer; outer = outer->outer) {
        if (outer->self == of) return true;
    }
    return false;
}

static VALUE scope_block_call_body(VALUE argument)
{
    struct crossing *crossing = (struct crossing *)argument;
    VALUE result = crossing->body(crossing->argument);
    crossing->complete = true;
    return result;
}

// Returns whether the error becomes a DeadlineExceeded: libraries turn a failed wait into errors of their own
// (Errno::ETIMEDOUT, a pool's or a client's error). `error` is nil for a throw, a break or a kill.
static bool becomes_ours(const struct scope *scope, VALUE error)
{
    if (scope->kind == SCOPE_TIMEOUT || NIL_P(error) || !RTEST(rb_obj_is_kind_of(error, rb_eStandardError)))
        return false;
    // An inner scope's DeadlineExceeded says as much, and nested scopes would wrap it again and again. But it is
    // converted if this scope itself has failed a wait.
    if (!scope->failures && RTEST(rb_obj_is_kind_of(error, heddle_eDeadlineExceeded))) return false;
    return (scope->expired || scope->at <= deadline_now()) && !belongs_outside(scope, error);
}

// Returns whether the error is of a later wait than the first that failed, or one that a library has made of it. Calls
// no method, since an interrupt may arrive when that returns, and the scope is still open.
static bool is_a_later_one(const struct scope *scope, VALUE error)
{
    return !NIL_P(scope->first) && error != scope->first && RTEST(rb_obj_is_kind_of(error, heddle_eDeadlineExceeded)) &&
           scope_that_raised(error) == scope->self;
}

static VALUE scope_block_leave(VALUE argument)
{
    const struct crossing *crossing = (const struct crossing *)argument;
    struct scope *scope = crossing->scope;
    if (scope->uses != crossing->uses) return Qnil;
    VALUE error = crossing->complete ? Qnil : rb_errinfo();
    bool ours = becomes_ours(scope, error) || is_a_later_one(scope, error);
    scope_close(scope);
    if (!NIL_P(scope->sent)) {
        if (scope->exit) scope->exit->disarm(scope->sent);
        thread_scope_take_back(scope);
    }
    if (ours) raise_with_cause(scope_final_error(scope), error);
    return Qnil;
}

// By rb_ensure alone: a rescue beside it would double the cost of a deadline. The scope lies in its Ruby object, which
// the chain marks only until scope_block_leave has closed the scope: the guard keeps it until its last use.
VALUE scope_call(struct scope *scope, VALUE (*body)(VALUE), VALUE argument)
{
    VALUE self = scope->self;
    struct crossing crossing = {.scope = scope, .body = body, .argument = argument, .uses = scope->uses};
    VALUE result = rb_ensure(scope_block_call_body, (VALUE)&crossing, scope_block_leave, (VALUE)&crossing);
    // Code inside may have rescued the failure of its wait and continued with half an answer.
    if (scope->uses == crossing.uses && scope->failures && scope->kind != SCOPE_TIMEOUT)
        rb_exc_raise(scope_final_error(scope));
    scope_hand_back(scope, crossing.uses);
    RB_GC_GUARD(self);
    return result;
}

static VALUE close_scope(VALUE scope)
{
    scope_close((struct scope *)scope);
    return Qnil;
}

VALUE deadline_shield(VALUE (*body)(VALUE), VALUE argument)
{
    struct scope_chain *chain = scope_chain_current();
    if (!chain->innermost) return body(argument);
    struct scope *scope = scope_new(SCOPE_DEADLINE_SHIELD, DEADLINE_NEVER);
    VALUE self = scope->self;
    scope_open(scope, chain, DEADLINE_NEVER);
    VALUE result = rb_ensure(body, argument, close_scope, (VALUE)scope);
    RB_GC_GUARD(self);
    return result;
}
