// Whose turn it is: switches to fibers, and the queue of those that the next select switches to.
#include "selector/bindings.h"
#include "selector/selector.h"

#include "os/fork.h"

static ID id_alive, id_transfer, id_raise;

VALUE selector_switch_to(VALUE fiber, int argc, const VALUE *argv)
{
    VALUE result = Qnil;
    if (!RTEST(rb_obj_is_fiber(fiber))) {
        if (RTEST(rb_funcall(fiber, id_alive, 0))) result = rb_funcallv(fiber, id_transfer, argc, argv);
    } else if (RTEST(rb_fiber_alive_p(fiber))) {
        result = rb_fiber_transfer(fiber, argc, argv);
    }
    // After switching back, rb_fiber_transfer reads the fiber that it had switched to, through a plain pointer.
    RB_GC_GUARD(fiber);
    return result;
}

VALUE selector_transfer(struct selector *selector)
{
    if (selector->fiber == rb_fiber_current()) return Qnil;
    return selector_switch_to(selector->fiber, 0, NULL);
}

// Appends a record to the queue; without a fiber it only marks a place.
static struct loop_wait *enqueue(struct selector *selector, VALUE fiber)
{
    struct loop_wait *turn = wait_acquire(&selector->poller.waits, WAIT_TURN);
    turn->fiber = fiber;
    turn->state = WAIT_READY;
    wait_list_insert(&selector->queue, turn, NULL);
    return turn;
}

static void dequeue(struct selector *selector, struct loop_wait *turn)
{
    if (turn->state == WAIT_READY) wait_list_remove(&selector->queue, turn);
    turn->state = WAIT_RUNNING;
}

struct turn {
    struct selector *selector;
    struct loop_wait *wait;
    unsigned forks;
    int argc;
    const VALUE *argv;
    int keywords;
};

static VALUE leave_queue(VALUE argument)
{
    struct turn *turn = (struct turn *)argument;
    if (turn->forks != fork_count()) return Qnil; // in a child: the record belongs to the parent
    dequeue(turn->selector, turn->wait);
    wait_release(&turn->selector->poller.waits, turn->wait);
    return Qnil;
}

// Runs `body`, which switches to another fiber, while the caller stands in the queue.
static VALUE take_turn(struct turn turn, VALUE (*body)(VALUE))
{
    turn.forks = fork_count();
    turn.wait = enqueue(turn.selector, rb_fiber_current());
    turn.wait->starter = true; // the fiber itself releases the record
    return rb_ensure(body, (VALUE)&turn, leave_queue, (VALUE)&turn);
}

static VALUE switch_in_turn(VALUE argument)
{
    struct turn *turn = (struct turn *)argument;
    return selector_switch_to(turn->argv[0], turn->argc - 1, turn->argv + 1);
}

static VALUE raise_in_turn(VALUE argument)
{
    struct turn *turn = (struct turn *)argument;
    return rb_funcallv_kw(turn->argv[0], id_raise, turn->argc - 1, turn->argv + 1, turn->keywords);
}

VALUE selector_yield(struct selector *selector)
{
    return take_turn((struct turn){.selector = selector, .argc = 1, .argv = &selector->fiber}, switch_in_turn);
}

// ---- the turns of all that stand in the queue

// The first record of a fiber before `end`; places that other flushes have marked are theirs to remove.
static struct loop_wait *next_turn(const struct selector *selector, const struct loop_wait *end)
{
    struct loop_wait *turn = selector->queue.head;
    while (turn && turn != end && !turn->fiber)
        turn = turn->next;
    return turn == end ? NULL : turn;
}

struct flush {
    struct selector *selector;
    struct loop_wait *end;
    unsigned forks;
    int count;
};

static VALUE flush_body(VALUE argument)
{
    struct flush *flush = (struct flush *)argument;
    struct selector *selector = flush->selector;
    struct loop_wait *turn;
    while (flush->forks == fork_count() && (turn = next_turn(selector, flush->end))) {
        VALUE fiber = turn->fiber;
        dequeue(selector, turn);
        if (!turn->starter) wait_release(&selector->poller.waits, turn);
        flush->count++;
        selector_switch_to(fiber, 0, NULL);
    }
    return Qnil;
}

static VALUE flush_end(VALUE argument)
{
    struct flush *flush = (struct flush *)argument;
    if (flush->forks != fork_count()) return Qnil;
    dequeue(flush->selector, flush->end);
    wait_release(&flush->selector->poller.waits, flush->end);
    return Qnil;
}

// A record marks the end, instead of a count.
int selector_flush(struct selector *selector)
{
    if (!selector->queue.head) return 0;
    struct flush flush = {.selector = selector, .end = enqueue(selector, 0), .forks = fork_count()};
    rb_ensure(flush_body, (VALUE)&flush, flush_end, (VALUE)&flush);
    return flush.count;
}

bool selector_has_turns(const struct selector *selector)
{
    return next_turn(selector, NULL);
}

// ---- Ruby's methods

/*
 * call-seq: selector.transfer -> object
 *
 * Switches to the loop fiber. Returns when something resumes the caller, with what it was given.
 */
static VALUE transfer(VALUE self)
{
    return selector_transfer(selector_open(self));
}

/*
 * call-seq: selector.yield -> object
 *
 * Switches to the loop fiber. The next #select resumes the caller.
 */
static VALUE yield(VALUE self)
{
    return selector_yield(selector_open(self));
}

/*
 * call-seq: selector.resume(fiber, *arguments) -> object
 *
 * Switches to +fiber+, with the arguments. The next #select resumes the caller.
 */
static VALUE resume(int argc, VALUE *argv, VALUE self)
{
    rb_check_arity(argc, 1, UNLIMITED_ARGUMENTS);
    return take_turn((struct turn){.selector = selector_open(self), .argc = argc, .argv = argv}, switch_in_turn);
}

/*
 * call-seq: selector.raise(fiber, *arguments, **options) -> object
 *
 * Raises an exception in +fiber+, with the arguments of Fiber#raise. The next #select resumes the caller.
 */
static VALUE raise_in_fiber(int argc, VALUE *argv, VALUE self)
{
    rb_check_arity(argc, 2, UNLIMITED_ARGUMENTS);
    struct turn turn = {.selector = selector_open(self), .argc = argc, .argv = argv, .keywords = rb_keyword_given_p()};
    return take_turn(turn, raise_in_turn);
}

/*
 * call-seq: selector.push(fiber) -> nil
 *
 * The next #select switches to +fiber+: a Fiber, or an object that answers to +alive?+ and +transfer+. Any thread; wake
 * the selector afterwards.
 */
static VALUE push(VALUE self, VALUE fiber)
{
    enqueue(selector_open(self), fiber);
    return Qnil;
}

void selector_turns_define(VALUE selector_class)
{
    id_alive = rb_intern("alive?");
    id_transfer = rb_intern("transfer");
    id_raise = rb_intern("raise");
    rb_define_method(selector_class, "transfer", transfer, 0);
    rb_define_method(selector_class, "yield", yield, 0);
    rb_define_method(selector_class, "resume", resume, -1);
    rb_define_method(selector_class, "raise", raise_in_fiber, -1);
    rb_define_method(selector_class, "push", push, 1);
}
