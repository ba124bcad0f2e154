// A scope's block: what its waits raise, what leaves it, and how the scope ends with it.
#include "scope/scope.h"

#include "os/peer.h"
#include "scope/bindings.h"
#include "scope/thread_scope.h"

#include <poll.h>

static ID id_scope; // without an @, which hides the variable
static ID id_backtrace, id_set_backtrace;

// ---- raising

static VALUE deadline_message(const struct scope *scope)
{
    const char *what = scope->kind == SCOPE_SHIELD ? "Heddle.shield" : "Heddle.deadline";
    double seconds = (double)scope->span / 1e9;
    if (scope->inherited)
        return rb_sprintf(
            "the task was started under a deadline of %g s, which has passed: every wait in the task fails", seconds);
    return rb_sprintf("the %g s of %s(%g) are over: every wait in its block fails until the block ends", seconds, what,
                      seconds);
}

// Adds what the task waited for when the time was over: later waits, of a retry, say nothing of the cause.
static VALUE whole_message(const struct scope *scope)
{
    VALUE message = deadline_message(scope);
    if (scope->descriptor < 0) return message;
    VALUE peer = peer_name(scope->descriptor);
    if (!NIL_P(peer))
        rb_str_catf(message, "; it ended a wait for %" PRIsVALUE " to be %s", peer,
                    scope->events & POLLIN ? "readable" : "writable");
    return message;
}

static VALUE deadline_exceeded(struct scope *scope, VALUE message)
{
    VALUE error = rb_exc_new_str(heddle_eDeadlineExceeded, message);
    rb_ivar_set(error, id_scope, scope->self);
    return error;
}

// The error that Thread#raise was to raise may never have arrived.
static bool arrived(VALUE error)
{
    return !NIL_P(error) && !NIL_P(rb_funcall(error, id_backtrace, 0));
}

static VALUE deadline_error(struct scope *scope)
{
    if (NIL_P(scope->message)) scope->message = whole_message(scope);
    VALUE error = deadline_exceeded(scope, scope->message);
    if (!arrived(scope->first)) scope->first = error;
    return error;
}

// The error with which a block ends: libraries try again, in vain, and raise what the last try met. It points to the
// first wait that failed.
static VALUE final_error(struct scope *scope)
{
    VALUE first = scope->first;
    if (!arrived(first)) return deadline_error(scope);
    VALUE places = rb_funcall(first, id_backtrace, 0), message = rb_str_dup(scope->message);
    if (RARRAY_LEN(places) > 0) rb_str_catf(message, "; first in %" PRIsVALUE, rb_ary_entry(places, 0));
    VALUE error = deadline_exceeded(scope, message);
    rb_funcall(error, id_set_backtrace, 1, places);
    return error;
}

VALUE scope_error(struct scope *scope)
{
    VALUE error;
    if (scope->kind != SCOPE_TIMEOUT) return deadline_error(scope);
    if (scope->exit) {
        error = scope->exception = scope->exit->exception(scope);
    } else { // like Kernel#raise: a class or an exception, with or without a message
        VALUE arguments[2] = {scope->exception, scope->message};
        error = rb_make_exception(NIL_P(scope->message) ? 1 : 2, arguments);
    }
    if (!OBJ_FROZEN(error)) rb_ivar_set(error, id_scope, scope->self);
    return error;
}

void scope_raise(struct scope *scope)
{
    scope->failures++;
    rb_exc_raise(scope_error(scope));
}

bool deadline_raised(VALUE error)
{
    return !NIL_P(rb_attr_get(error, id_scope));
}

// ---- leaving a scope's block

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
    VALUE of = rb_attr_get(error, id_scope);
    if (of == scope->self) return true;
    for (const struct scope *outer = scope->outer; outer; outer = outer->outer) {
        if (outer->self == of) return true;
    }
    return false;
}

static VALUE call_body(VALUE argument)
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
// no method, since an interrupt may strike when that returns, and the scope is still open.
static bool is_a_later_one(const struct scope *scope, VALUE error)
{
    return !NIL_P(scope->first) && error != scope->first && RTEST(rb_obj_is_kind_of(error, heddle_eDeadlineExceeded)) &&
           rb_attr_get(error, id_scope) == scope->self;
}

void raise_with_cause(VALUE error, VALUE cause)
{
    VALUE arguments[2] = {error, rb_hash_new()};
    rb_hash_aset(arguments[1], ID2SYM(rb_intern("cause")), cause);
    rb_funcallv_kw(rb_mKernel, rb_intern("raise"), 2, arguments, RB_PASS_KEYWORDS);
    UNREACHABLE;
}

static VALUE leave(VALUE argument)
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
    if (ours) raise_with_cause(final_error(scope), error);
    return Qnil;
}

// Without a rescue, which would double the cost.
VALUE scope_call(struct scope *scope, VALUE (*body)(VALUE), VALUE argument)
{
    VALUE self = scope->self;
    struct crossing crossing = {.scope = scope, .body = body, .argument = argument, .uses = scope->uses};
    VALUE result = rb_ensure(call_body, (VALUE)&crossing, leave, (VALUE)&crossing);
    // Code inside may have rescued the failure of its wait and continued with half an answer.
    if (scope->uses == crossing.uses && scope->failures && scope->kind != SCOPE_TIMEOUT)
        rb_exc_raise(final_error(scope));
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

void Init_heddle_scope_block(void)
{
    id_scope = rb_intern("__heddle_scope__");
    id_backtrace = rb_intern("backtrace");
    id_set_backtrace = rb_intern("set_backtrace");
}
