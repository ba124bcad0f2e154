// RubyFixes.keep_error. A thread or program that ends with an error closes its scheduler with that error in $!, which
// no frame holds: the first `rescue` in the fiber that closes would lose it, and Thread#join would raise nothing.
#include "heddle.h"
#include "scheduler/bindings.h"

/*
 * call-seq: RubyFixes.keep_error { ... } -> object
 *
 * Calls a block that rescues, and leaves $! as it was.
 *
 * @api private
 */
static VALUE keep_error(VALUE self)
{
    (void)self;
    VALUE error = rb_errinfo();
    VALUE result = rb_yield(Qnil);
    if (NIL_P(error) || is_exception(error)) rb_set_errinfo(error);
    return result;
}

void error_kept_define(void)
{
    rb_define_singleton_method(rb_define_module_under(heddle_module, "RubyFixes"), "keep_error", keep_error, 0);
}
