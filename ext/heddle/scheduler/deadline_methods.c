// Heddle.deadline, Heddle.shield, Heddle.remaining.
#include "scheduler/bindings.h"

#include "scope/scope.h"

static VALUE yield_nothing(VALUE unused)
{
    (void)unused;
    return rb_yield_values(0);
}

static VALUE within(enum scope_kind kind, int64_t span)
{
    struct scope *scope = scope_new(kind, span);
    VALUE self = scope->self;
    scope_open(scope, scope_chain_current(), deadline_after(deadline_now(), span));
    VALUE result = scope_call(scope, yield_nothing, Qnil);
    RB_GC_GUARD(self);
    return result;
}

/*
 * call-seq: Heddle.deadline(seconds) { ... } -> object
 *
 * Runs the block, which has +seconds+ (Numeric) for all that it waits for: names, connects, every read and write, locks,
 * queues, sleeps, in whatever library. Returns the block's value. It works in tasks and in plain threads.
 *
 * From then on every wait in the block fails with Heddle::DeadlineExceeded, the first and each later one, until the block
 * is left: a library that rescues Timeout::Error and tries again fails again, at once. So do waits in +ensure+; a
 * Heddle.shield gives them time of their own. Code that computes is not interrupted. Of nested deadlines the earlier one
 * counts. Tasks that Heddle.spawn and pools start inside are bound by it, to their end; a fiber of Fiber.schedule is not.
 *
 * A StandardError that leaves the block after its time becomes DeadlineExceeded, with the error as its cause. Interrupt,
 * SystemExit, a cancellation, throw, break and return pass as they are. The block's value is returned if no wait in it
 * failed, though it may be late; else DeadlineExceeded is raised, also if code inside rescued it.
 *
 * [seconds] nil or Infinity: no deadline. 0: what need not wait succeeds, the first wait fails.
 *
 * Raises ArgumentError for negative numbers, NaN, and without a block, TypeError for what is no number.
 */
static VALUE deadline(VALUE self, VALUE seconds)
{
    (void)self;
    if (!rb_block_given_p())
        rb_raise(rb_eArgError, "Heddle.deadline needs a block: the work that has to be done in time");
    int64_t span = deadline_span(seconds);
    return span == DEADLINE_NEVER ? rb_yield_values(0) : within(SCOPE_DEADLINE, span);
}

/*
 * call-seq: Heddle.shield(seconds) { ... } -> object
 *
 * Runs the block, which has +seconds+ (Numeric) of its own: deadlines and Timeout.timeout around it do not reach into it,
 * nor does Task#cancel; they are raised in the first wait after it. For clean-up that must wait, in an +ensure+. Otherwise
 * it is a Heddle.deadline.
 *
 * Raises ArgumentError for nil and Infinity (what can neither be cancelled nor ends by itself would hang for ever), for
 * negative numbers, NaN, and without a block, TypeError for what is no number.
 */
static VALUE shield(VALUE self, VALUE seconds)
{
    (void)self;
    if (!rb_block_given_p())
        rb_raise(rb_eArgError, "Heddle.shield needs a block: the work that must not be interrupted");
    int64_t span = deadline_span(seconds);
    if (span == DEADLINE_NEVER)
        rb_raise(rb_eArgError, "Heddle.shield needs a bound: nothing could end a block that waits for ever inside");
    return within(SCOPE_SHIELD, span);
}

/*
 * call-seq: Heddle.remaining -> Float or nil
 *
 * The seconds that are left of the deadline in force; 0.0 when it has passed, nil without one.
 */
static VALUE remaining(VALUE self)
{
    (void)self;
    deadline_t at = deadline_in_force();
    if (at == DEADLINE_NEVER) return Qnil;
    int64_t left = at - deadline_now();
    return DBL2NUM(left > 0 ? (double)left / 1e9 : 0.0);
}

void Init_heddle_deadline_methods(void)
{
    rb_define_singleton_method(heddle_module, "deadline", deadline, 1);
    rb_define_singleton_method(heddle_module, "shield", shield, 1);
    rb_define_singleton_method(heddle_module, "remaining", remaining, 0);
}
