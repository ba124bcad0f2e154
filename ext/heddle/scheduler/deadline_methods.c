// Heddle.deadline, Heddle.shield, Heddle.remaining.
#include "scheduler/bindings.h"

#include "scope/scope.h"
#include "task/current.h"
#include "task/task_loop.h"

static VALUE call_within(struct scope *scope, VALUE (*body)(VALUE))
{
    VALUE self = scope->self;
    scope_open(scope, scope_chain_current(), deadline_in(scope->span));
    VALUE result = scope_call(scope, body, (VALUE)scope);
    RB_GC_GUARD(self);
    return result;
}

static VALUE deadline_methods_within(enum scope_kind kind, int64_t span)
{
    return call_within(scope_new(kind, span), yield_nothing);
}

/*
 * call-seq: Heddle.deadline(seconds) { ... } -> object
 *
 * Gives the block +seconds+ (Numeric) for all of its waits: names, connects, every read and write, locks, queues,
 * sleeps, in any library. Returns the block's value. Works in tasks and in plain threads.
 *
 * When the time is over, every wait in the block fails with Heddle::DeadlineExceeded, the first and each later one,
 * until the block is left: a library that rescues Timeout::Error and tries again fails again at once. Waits in +ensure+
 * fail, too; a Heddle.shield gives them time of their own. Code that computes is not interrupted. Of nested deadlines
 * the earliest counts. A deadline binds tasks that Heddle.spawn and pools start inside, to their end; it does not bind
 * a fiber of Fiber.schedule.
 *
 * A StandardError that leaves the block after its time becomes DeadlineExceeded, with the error as its cause.
 * Interrupt, SystemExit, a cancellation, throw, break and return pass unchanged. If no wait in the block failed, its
 * value is returned, even if it is late; otherwise DeadlineExceeded is raised, even if code inside rescued it. The
 * deadline has failed a wait, too, where it ended a task inside, and the block got the error of that task.
 *
 * [seconds] nil or Infinity: no deadline. 0: code that need not wait succeeds, the first wait fails.
 *
 * Raises ArgumentError for a negative number, for NaN, and without a block; TypeError for an object that is not a
 * number.
 */
static VALUE deadline(VALUE self, VALUE seconds)
{
    (void)self;
    if (!rb_block_given_p()) rb_raise(rb_eArgError, "Heddle.deadline needs a block: the work to finish in time");
    int64_t span = deadline_span(seconds);
    return span == DEADLINE_NEVER ? rb_yield_values(0) : deadline_methods_within(SCOPE_DEADLINE, span);
}

static VALUE yield_call(VALUE argument)
{
    struct scope *scope = (struct scope *)argument;
    VALUE value = rb_yield_values(0);
    struct loop *loop = scope->bequeathed ? context_of_thread().loop : NULL;
    if (loop && !scope->failures) task_loop_call_returned(loop, scope->call);
    return value;
}

/*
 * call-seq: Heddle.deadline_of_call(seconds) { ... } -> object
 *
 * Like Heddle.deadline. But once the block has returned, the deadline no longer binds the tasks that were started
 * inside and go on, such as one that writes the body of a response.
 *
 * @api private
 */
static VALUE deadline_of_call(VALUE self, VALUE seconds)
{
    (void)self;
    static uint64_t calls; // under the GVL
    int64_t span = deadline_span(seconds);
    if (span == DEADLINE_NEVER) return rb_yield_values(0);
    struct scope *scope = scope_new(SCOPE_DEADLINE, span);
    scope->call = ++calls;
    return call_within(scope, yield_call);
}

/*
 * call-seq: Heddle.shield(seconds) { ... } -> object
 *
 * Gives the block +seconds+ (Numeric) of its own: outer deadlines, an outer Timeout.timeout and Task#cancel do not
 * reach into the block; the first wait after it raises them. Meant for clean-up that must wait, in an +ensure+.
 * Otherwise works like Heddle.deadline.
 *
 * Raises ArgumentError for nil and Infinity (a block that nothing can cancel or end could hang for ever), for a
 * negative number, for NaN, and without a block; TypeError for an object that is not a number.
 */
static VALUE shield(VALUE self, VALUE seconds)
{
    (void)self;
    if (!rb_block_given_p()) rb_raise(rb_eArgError, "Heddle.shield needs a block: the work to protect");
    int64_t span = deadline_span(seconds);
    if (span == DEADLINE_NEVER)
        rb_raise(rb_eArgError,
                 "Heddle.shield needs a time limit, in seconds: nothing else could end a shielded block that waits");
    return deadline_methods_within(SCOPE_SHIELD, span);
}

/*
 * call-seq: Heddle.unlimited_shield { ... } -> object
 *
 * Heddle.shield for a block that is known to end: it needs no timer, and under another gem's scheduler no fiber that
 * watches the time, whose start would let other tasks run before the block does.
 *
 * @api private
 */
static VALUE unlimited_shield(VALUE self)
{
    (void)self;
    return deadline_methods_within(SCOPE_SHIELD, DEADLINE_NEVER);
}

/*
 * call-seq: Heddle.scoped? -> true or false
 *
 * Whether a deadline, a timeout, a shield or a filter of Heddle's is in force here.
 *
 * @api private
 */
static VALUE scoped_p(VALUE self)
{
    (void)self;
    return scopes_open() ? Qtrue : Qfalse;
}

/*
 * call-seq: Heddle.remaining -> Float or nil
 *
 * The seconds left until the deadline in force: 0.0 after it has passed, nil without a deadline.
 */
static VALUE remaining(VALUE self)
{
    (void)self;
    return deadline_left(deadline_in_force());
}

/*
 * call-seq: Heddle.refuse_late -> nil
 *
 * Raises what a wait would raise if a deadline around the running code has passed: for code that is about to send a
 * request whose answer it could not wait for.
 *
 * @api private
 */
static VALUE refuse_late(VALUE self)
{
    (void)self;
    deadline_refuse_late();
    return Qnil;
}

void Init_heddle_deadline_methods(void)
{
    rb_define_singleton_method(heddle_module, "deadline", deadline, 1);
    rb_define_singleton_method(heddle_module, "deadline_of_call", deadline_of_call, 1);
    rb_define_singleton_method(heddle_module, "shield", shield, 1);
    rb_define_singleton_method(heddle_module, "unlimited_shield", unlimited_shield, 0);
    rb_define_singleton_method(heddle_module, "remaining", remaining, 0);
    rb_define_singleton_method(heddle_module, "scoped?", scoped_p, 0);
    rb_define_singleton_method(heddle_module, "refuse_late", refuse_late, 0);
}
