#include "scheduler/timeout.h"

#include "os/main_ractor.h"
#include "scheduler/bindings.h"
#include "shims.h"
#include "task/current.h"

#include <ruby/ractor.h>
#include <stdatomic.h>

static VALUE eTimeoutError;
static VALUE cExit; // Timeout::ExitException; 0 if Ruby's timeout has none
static VALUE cThrow;
static VALUE usual_message;
static ID id_thread, id_set_backtrace, id_backtrace;

// ---- Ruby 3.1's timeout throws to its own block's border, which no rescue catches, not even rescue Exception. Ruby
// calls #exception on the raised object twice: in the helper (Thread#raise), and where it arrives.

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
 * Throws to the border of its block, if called in its own thread.
 */
static VALUE exception(int argc, VALUE *argv, VALUE self)
{
    (void)argc, (void)argv;
    if (rb_attr_get(self, id_thread) != rb_thread_current()) return self;
    rb_ivar_set(self, id_thread, Qnil);
    rb_funcall(self, id_set_backtrace, 1, rb_funcall(rb_mKernel, rb_intern("caller"), 1, INT2FIX(0)));
    return rb_rescue2(throw_to_border, self, raise_instead, self, rb_path2class("UncaughtThrowError"), (VALUE)0);
}

static VALUE exit_exception(struct scope *scope)
{
    // The message's own code may wait, and the block may end meanwhile: then the scope is no longer in a chain.
    VALUE thread = scope->chain->thread ? scope->chain->thread : rb_thread_current();
    VALUE exit = rb_exc_new_str(cExit ? cExit : cThrow, rb_obj_as_string(scope->message));
    if (!cExit) rb_ivar_set(exit, id_thread, thread);
    return exit;
}

static void exit_disarm(VALUE exit)
{
    if (!cExit) rb_ivar_set(exit, id_thread, Qnil);
}

static const struct scope_exit block_exit = {.exception = exit_exception, .disarm = exit_disarm};

// ---- leaving the block

struct timing {
    struct scope *scope;
    VALUE seconds;
};

static VALUE timeout_call(VALUE argument)
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
    return timeout_call(argument);
}

static VALUE call_to_border(struct timing *timing)
{
    if (!timing->scope->exit) return timeout_call((VALUE)timing);
    if (cExit) return rb_rescue2(timeout_call, (VALUE)timing, convert, (VALUE)timing, cExit, (VALUE)0);
    VALUE result = rb_catch_obj(timing->scope->self, call_in_catch, (VALUE)timing);
    if (timing->scope->failures && result == timing->scope->exception) {
        VALUE error = timeout_error(timing->scope);
        rb_funcall(error, id_set_backtrace, 1, rb_funcall(result, id_backtrace, 0));
        rb_exc_raise(error);
    }
    return result;
}

VALUE timeout_yield(VALUE seconds, VALUE exception, VALUE message)
{
    struct scope *scope = scope_new(SCOPE_TIMEOUT, deadline_span(seconds));
    VALUE self = scope->self;
    struct timing timing = {.scope = scope, .seconds = seconds};
    scope->exception = exception;
    scope->message = NIL_P(exception) && NIL_P(message) ? usual_message : message;
    if (NIL_P(exception)) scope->exit = &block_exit;
    VALUE result = call_to_border(&timing);
    RB_GC_GUARD(self);
    return result;
}

// ---- Timeout.timeout

static atomic_bool enabled; // other Ractors read it

static bool is_zero(VALUE seconds)
{
    if (FIXNUM_P(seconds)) return seconds == INT2FIX(0);
    if (RB_FLOAT_TYPE_P(seconds)) return RFLOAT_VALUE(seconds) == 0.0;
    return RTEST(rb_funcall(seconds, rb_intern("zero?"), 0));
}

static bool is_negative(VALUE seconds)
{
    if (FIXNUM_P(seconds)) return FIX2LONG(seconds) < 0;
    if (RB_FLOAT_TYPE_P(seconds)) return RFLOAT_VALUE(seconds) < 0.0;
    return RTEST(rb_funcall(seconds, rb_intern("negative?"), 0));
}

/*
 * call-seq: timeout(seconds, exception = nil, message = nil) { |seconds| ... } -> object
 *
 * Prepended to Timeout's own method.
 */
static VALUE timeout(int argc, VALUE *argv, VALUE self)
{
    (void)self;
    rb_check_arity(argc, 1, 3);
    if (!enabled || !in_main_ractor()) return rb_call_super(argc, argv);
    struct context context = context_of_fiber();
    if (!NIL_P(context.scheduler) && !context.loop) return rb_call_super(argc, argv);
    VALUE seconds = argv[0];
    if (NIL_P(seconds) || is_zero(seconds)) return rb_yield(seconds);
    if (is_negative(seconds)) rb_raise(rb_eArgError, "Timeout sec must be a non-negative number");
    rb_need_block();
    VALUE message = argc > 2 && RTEST(argv[2]) ? argv[2] : usual_message;
    return timeout_yield(seconds, argc > 1 ? argv[1] : Qnil, message);
}

/*
 * call-seq: Heddle::TimeoutSupport.enable -> nil
 *
 * Called by the `require`.
 */
static VALUE enable(VALUE self)
{
    (void)self;
    enabled = true;
    return Qnil;
}

/*
 * call-seq: Heddle::TimeoutSupport.disable -> nil
 *
 * Returns to Ruby's own Timeout.timeout, for later calls.
 */
static VALUE disable(VALUE self)
{
    (void)self;
    enabled = false;
    return Qnil;
}

/*
 * call-seq: Heddle::TimeoutSupport.enabled? -> true or false
 */
static VALUE is_enabled(VALUE self)
{
    (void)self;
    return enabled ? Qtrue : Qfalse;
}

void Init_heddle_timeout(void)
{
    id_thread = rb_intern("__heddle_thread__");
    id_set_backtrace = rb_intern("set_backtrace");
    id_backtrace = rb_intern("backtrace");
    VALUE stock = rb_path2class("Timeout");
    rb_gc_register_mark_object(eTimeoutError = rb_path2class("Timeout::Error"));
    ID exit_exception = rb_intern("ExitException"); // timeout >= 0.3.2; RUBY_VERSION >= 3.3
    if (rb_const_defined_at(stock, exit_exception)) {
        rb_gc_register_mark_object(cExit = rb_const_get_at(stock, exit_exception));
    } else {
        rb_gc_register_mark_object(cThrow = rb_class_new(eTimeoutError));
        rb_define_method(cThrow, "exception", exception, -1);
    }
    usual_message = rb_obj_freeze(rb_str_new_cstr("execution expired"));
    rb_gc_register_mark_object(usual_message);
    VALUE support = rb_define_module_under(heddle_module, "TimeoutSupport");
    rb_define_singleton_method(support, "enable", enable, 0);
    rb_define_singleton_method(support, "disable", disable, 0);
    rb_define_singleton_method(support, "enabled?", is_enabled, 0);
    VALUE front = rb_define_module_under(support, "Front");
    rb_ext_ractor_safe(true); // every Ractor has timeouts
    rb_define_method(front, "timeout", timeout, -1);
    rb_ext_ractor_safe(false);
    rb_funcall(support, rb_intern("private_constant"), 1, ID2SYM(rb_intern("Front")));
}
