// What the waits of a scope raise once its time is over.
#include "cancel/chain.h"

#include "os/peer.h"

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

// Libraries try again, in vain, and raise what the last try met. This error points to the first wait that failed.
VALUE scope_final_error(struct scope *scope)
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

void scope_failed_in_task(struct scope *scope, VALUE error)
{
    scope->failures++;
    if (NIL_P(scope->message)) scope->message = whole_message(scope);
    if (!arrived(scope->first)) scope->first = error;
}

VALUE scope_that_raised(VALUE error)
{
    return rb_attr_get(error, id_scope);
}

void raise_with_cause(VALUE error, VALUE cause)
{
    VALUE arguments[2] = {error, rb_hash_new()};
    rb_hash_aset(arguments[1], ID2SYM(rb_intern("cause")), cause);
    rb_funcallv_kw(rb_mKernel, rb_intern("raise"), 2, arguments, RB_PASS_KEYWORDS);
    UNREACHABLE;
}

void Init_heddle_scope_error(void)
{
    id_scope = rb_intern("__heddle_scope__");
    id_backtrace = rb_intern("backtrace");
    id_set_backtrace = rb_intern("set_backtrace");
}
