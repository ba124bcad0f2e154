#include "loop/timeout.h"

static VALUE eTimeoutError;
static VALUE cExit; // Timeout::ExitException; 0 where Ruby's timeout has none
static VALUE cThrow;
static ID id_thread, id_set_backtrace, id_backtrace;

// ---- Ruby 3.1's timeout throws to the border of its block: no rescue sees that, not even one of Exception. Ruby calls
// #exception of what is raised, in the helper first (Thread#raise), then where it arrives.

static VALUE throw_to_border(VALUE exit)
{
    rb_throw_obj(rb_attr_get(exit, rb_intern("__heddle_scope__")), exit);
    return exit;
}

static VALUE raise_instead(VALUE exit, VALUE error)
{
    (void)error;
    return exit;
}

/*
 * call-seq: exit.exception(*) -> exit
 *
 * Throws to the border of its block, when it is raised in its own thread.
 */
static VALUE exception(int argc, VALUE *argv, VALUE self)
{
    (void)argc, (void)argv;
    if (rb_attr_get(self, id_thread) != rb_thread_current()) return self;
    rb_ivar_set(self, id_thread, Qnil);
    rb_funcall(self, id_set_backtrace, 1, rb_funcall(rb_mKernel, rb_intern("caller"), 1, INT2FIX(0)));
    return rb_rescue2(throw_to_border, self, raise_instead, self, rb_path2class("UncaughtThrowError"), (VALUE)0);
}

VALUE timeout_exit(struct scope *scope)
{
    VALUE exit = rb_exc_new_str(cExit ? cExit : cThrow, rb_obj_as_string(scope->message));
    if (!cExit) rb_ivar_set(exit, id_thread, scope->chain->thread ? scope->chain->thread : rb_thread_current());
    return exit;
}

void timeout_disarm(VALUE exit)
{
    if (!cExit) rb_ivar_set(exit, id_thread, Qnil);
}

// ---- the border

struct timing {
    struct scope *scope;
    VALUE seconds;
};

static VALUE call(VALUE argument)
{
    struct timing *timing = (struct timing *)argument;
    scope_open(timing->scope, scope_chain_current(), deadline_after(deadline_now(), timing->scope->span));
    return scope_call(timing->scope, rb_yield, timing->seconds);
}

static VALUE timeout_error(const struct scope *scope)
{
    return rb_class_new_instance(1, &scope->message, eTimeoutError);
}

static VALUE convert(VALUE argument, VALUE error)
{
    const struct scope *scope = ((struct timing *)argument)->scope;
    rb_exc_raise(error == scope->exception ? timeout_error(scope) : error);
}

static VALUE call_in_catch(RB_BLOCK_CALL_FUNC_ARGLIST(tag, argument))
{
    (void)tag, (void)argc, (void)argv, (void)blockarg;
    return call(argument);
}

/*
 * call-seq: Heddle.timeout_scope(seconds, exception, message) { |seconds| ... } -> object
 *
 * @api private What Timeout.timeout does once it has looked at its arguments. +exception+: class or instance, or nil.
 */
static VALUE timeout_scope(VALUE self, VALUE seconds, VALUE exception_class, VALUE message)
{
    (void)self;
    rb_need_block();
    struct scope *scope = scope_new(SCOPE_TIMEOUT, deadline_span(seconds));
    VALUE object = scope->self;
    struct timing timing = {.scope = scope, .seconds = seconds};
    scope->exception = exception_class;
    scope->message = message;
    scope->unrescuable = NIL_P(exception_class);
    VALUE result;
    if (!scope->unrescuable) {
        result = call((VALUE)&timing);
    } else if (cExit) {
        result = rb_rescue2(call, (VALUE)&timing, convert, (VALUE)&timing, cExit, (VALUE)0);
    } else {
        result = rb_catch_obj(object, call_in_catch, (VALUE)&timing);
        if (scope->failures && result == scope->exception) {
            VALUE error = timeout_error(scope);
            rb_funcall(error, id_set_backtrace, 1, rb_funcall(result, id_backtrace, 0));
            rb_exc_raise(error);
        }
    }
    RB_GC_GUARD(object);
    return result;
}

void Init_heddle_timeout(void)
{
    id_thread = rb_intern("__heddle_thread__");
    id_set_backtrace = rb_intern("set_backtrace");
    id_backtrace = rb_intern("backtrace");
    VALUE timeout = rb_path2class("Timeout");
    rb_gc_register_mark_object(eTimeoutError = rb_path2class("Timeout::Error"));
    ID exit_exception = rb_intern("ExitException"); // timeout >= 0.3.2; RUBY_VERSION >= 3.3
    if (rb_const_defined_at(timeout, exit_exception)) {
        rb_gc_register_mark_object(cExit = rb_const_get_at(timeout, exit_exception));
    } else {
        rb_gc_register_mark_object(cThrow = rb_class_new(eTimeoutError));
        rb_define_method(cThrow, "exception", exception, -1);
    }
    rb_define_singleton_method(heddle_module, "timeout_scope", timeout_scope, 3);
}
