// Heddle::Selector: fibers that wait, and the loop fiber that switches to them. The contract is io-event's: see
// https://github.com/socketry/io-event, design.md and lib/io/event/selector/select.rb.
#include "selector/selector.h"

#include "os/fork.h"
#include "selector/bindings.h"
#include "shims.h"

#include <errno.h>
#include <poll.h>

static ID id_pending_interrupt;

// ---- life

static bool inherited(const struct selector *selector)
{
    return selector->forks != fork_count();
}

static void mark_wait(struct loop_wait *wait, void *unused)
{
    (void)unused;
    if (wait->fiber) rb_gc_mark(wait->fiber);
}

static void mark(void *pointer)
{
    struct selector *selector = pointer;
    rb_gc_mark(selector->self);
    rb_gc_mark(selector->fiber);
    wait_slab_each(&selector->poller.waits, mark_wait, NULL);
}

static void release(void *pointer)
{
    struct selector *selector = pointer;
    poller_close(&selector->poller, inherited(selector));
    poller_free(&selector->poller);
    xfree(selector);
}

static size_t memory_size(const void *pointer)
{
    const struct selector *selector = pointer;
    return sizeof(*selector) + poller_memsize(&selector->poller);
}

static const rb_data_type_t selector_type = {
    .wrap_struct_name = "Heddle::Selector",
    .function = {.dmark = mark, .dfree = release, .dsize = memory_size},
    .flags = RUBY_TYPED_FREE_IMMEDIATELY,
};

// Called while descriptors are polled or closed: another file may get the number before the fiber runs.
static void wake(struct poller *poller, struct loop_wait *wait)
{
    struct selector *selector = (struct selector *)poller; // its first member
    if (wait->state != WAIT_PARKED) return;
    wait->state = WAIT_READY;
    wait_list_insert(&selector->ended, wait, NULL);
}

static VALUE allocate(VALUE klass)
{
    struct selector *selector;
    VALUE self = TypedData_Make_Struct(klass, struct selector, &selector_type, selector);
    selector->poller.wake = wake;
    selector->poller.ruby_ends_waits = SHIM_CLOSE_ENDS_WAITS;
    selector->self = self;
    selector->fiber = Qnil;
    selector->forks = fork_count();
    return self;
}

static struct selector *selector_of(VALUE self)
{
    struct selector *selector;
    TypedData_Get_Struct(self, struct selector, &selector_type, selector);
    return selector;
}

static bool is_open(const struct selector *selector)
{
    return selector->poller.backend_state && !inherited(selector);
}

// Whether a thread waits in #select, without the GVL.
static bool sleeps(const struct selector *selector)
{
    return is_open(selector) && atomic_load(&selector->poller.wakeup->sleeping);
}

// In a child of fork: io-event's selectors go on there, too. The parent's waits stay the parent's.
static void begin_in_child(struct selector *selector)
{
    poller_abandon(&selector->poller);
    selector->queue = selector->ended = (struct wait_list){0};
    poller_open(&selector->poller);
    selector->forks = fork_count();
}

struct selector *selector_open(VALUE self)
{
    struct selector *selector = selector_of(self);
    bool usable = selector->poller.backend && !selector->closed;
    if (usable && inherited(selector)) begin_in_child(selector);
    if (!usable || !is_open(selector)) rb_raise(rb_eIOError, "this selector is closed: make another one");
    return selector;
}

/*
 * call-seq: Heddle::Selector.new(loop) -> selector
 *
 * A selector for the fiber +loop+, which must belong to the calling thread. HEDDLE_BACKEND in the environment names the
 * backend; the default is the best that the kernel allows.
 *
 * Raises ArgumentError for an unknown HEDDLE_BACKEND, Heddle::BackendUnavailable for a backend that this build or
 * kernel lacks, SystemCallError when no file descriptor is left.
 */
static VALUE initialize(VALUE self, VALUE fiber)
{
    struct selector *selector = selector_of(self);
    if (selector->poller.backend) rb_raise(rb_eArgError, "this selector is already initialized");
    selector->fiber = fiber;
    selector->poller.backend = backend_choose();
    poller_open(&selector->poller);
    return self;
}

/*
 * call-seq: selector.loop -> Fiber
 *
 * The fiber that calls #select.
 */
static VALUE loop_fiber(VALUE self)
{
    return selector_of(self)->fiber;
}

/*
 * call-seq: selector.backend -> String
 *
 * +uring+, +epoll+ or +poll+; nil before #initialize.
 */
static VALUE backend(VALUE self)
{
    const struct backend *used = selector_of(self)->poller.backend;
    return used ? rb_str_new_cstr(used->name) : Qnil;
}

/*
 * call-seq: selector.close -> nil
 *
 * Closes the selector's file descriptors. Fibers that still wait are not resumed. Raises Heddle::WrongThread while
 * another thread waits in #select.
 */
static VALUE close_selector(VALUE self)
{
    struct selector *selector = selector_of(self);
    if (sleeps(selector))
        rb_raise(heddle_eWrongThread, "a thread waits in this selector: call wakeup, and close it on that thread");
    poller_close(&selector->poller, inherited(selector));
    selector->closed = true;
    return Qnil;
}

/*
 * call-seq: selector.closed? -> true or false
 *
 * Whether the selector was closed.
 */
static VALUE closed_p(VALUE self)
{
    const struct selector *selector = selector_of(self);
    return selector->poller.backend && !selector->closed ? Qfalse : Qtrue;
}

// ---- waiting

struct waiting {
    struct selector *selector;
    struct loop_wait *wait;
    unsigned forks;
    short revents;
    int error;
    bool always_ready;
};

static VALUE wait_body(VALUE argument)
{
    struct waiting *waiting = (struct waiting *)argument;
    waiting->error = descriptor_arm(&waiting->selector->poller, waiting->wait);
    waiting->always_ready = waiting->error == EPERM;
    if (!waiting->error) selector_transfer(waiting->selector);
    return Qnil;
}

static VALUE wait_end(VALUE argument)
{
    struct waiting *waiting = (struct waiting *)argument;
    struct selector *selector = waiting->selector;
    struct loop_wait *wait = waiting->wait;
    if (waiting->forks != fork_count()) return Qnil; // in a child: the record belongs to the parent
    descriptor_leave(&selector->poller, wait);
    if (wait->state == WAIT_READY) wait_list_remove(&selector->ended, wait);
    waiting->revents = wait->revents;
    if (wait->error) waiting->error = wait->error;
    wait_release(&selector->poller.waits, wait);
    return Qnil;
}

short selector_wait(struct selector *selector, VALUE fiber, int descriptor, short events)
{
    struct waiting waiting = {.selector = selector, .forks = fork_count()};
    waiting.wait = wait_acquire(&selector->poller.waits, WAIT_DESCRIPTOR);
    waiting.wait->fiber = fiber;
    waiting.wait->descriptor = descriptor;
    waiting.wait->events = events;
    rb_ensure(wait_body, (VALUE)&waiting, wait_end, (VALUE)&waiting);
    if (waiting.always_ready) {
        selector_yield(selector);
        return events;
    }
    if (waiting.error) wait_raise_error(waiting.error, "waiting for an IO");
    return waiting.revents;
}

// ---- selecting

// Switches to the fibers whose waits have ended; also to those whose waits end meanwhile. If a fiber's error passes
// through here, the next select switches to the others.
static int resume_ended(struct selector *selector)
{
    unsigned forks = fork_count();
    int count = 0;
    struct loop_wait *wait;
    while (forks == fork_count() && (wait = selector->ended.head)) {
        wait_list_remove(&selector->ended, wait);
        wait->state = WAIT_RUNNING;
        count++;
        selector_switch_to(wait->fiber, 0, NULL);
    }
    return count;
}

static bool ready(const struct selector *selector)
{
    return !inherited(selector) && (selector->ended.head || selector_has_turns(selector));
}

// A timer of io-event's that is late gives a negative span.
static int64_t span_of(VALUE duration)
{
    if (RB_FLOAT_TYPE_P(duration) && RFLOAT_VALUE(duration) <= 0) return 0;
    return deadline_span(duration);
}

// Whether to return to Ruby code, which checks for interrupts, or to a caller that masks them and asks whether one is
// pending: a wait that began now would not be ended by it. Looks for a trap first, because Ruby runs its handler at the
// end of the call, after the answer.
static bool interrupt_pending(void)
{
    VALUE thread = rb_thread_current();
    return rb_thread_interrupted(thread) || RTEST(rb_funcall(thread, id_pending_interrupt, 0));
}

// Returns whether to poll without a wait. No other code may run between this answer and the poll.
static bool must_not_wait(struct selector *selector)
{
    if (ready(selector)) return true;
    uint32_t wakeups = selector->wakeups;
    // At the end of interrupt_pending a signal handler or another thread may run, and call wakeup before the wait.
    return interrupt_pending() || ready(selector) || wakeups != selector->wakeups;
}

/*
 * call-seq: selector.select(duration = nil) -> Integer
 *
 * Switches to each fiber that was pushed or has yielded, then polls the kernel, and switches to each fiber whose wait
 * has ended. If there was none of the first kind, waits for at most +duration+ seconds; nil waits without limit. An
 * interrupt or #wakeup ends that. Returns how many waits have ended.
 */
static VALUE select_events(int argc, VALUE *argv, VALUE self)
{
    rb_check_arity(argc, 0, 1);
    struct selector *selector = selector_open(self);
    int64_t span = span_of(argc ? argv[0] : Qnil);
    selector->idle = 0;
    bool busy = selector_flush(selector) > 0;
    if (!is_open(selector)) return INT2FIX(0); // a fiber has closed it, or goes on in a child of fork
    bool at_once = busy || span == 0 || must_not_wait(selector);
    if (!is_open(selector)) return INT2FIX(0); // a handler of a signal has closed it
    if (at_once) {
        poller_poll(&selector->poller, 0, DEADLINE_NEVER);
    } else {
        deadline_t now = deadline_now();
        poller_poll(&selector->poller, span, deadline_after(now, span));
        selector->idle = deadline_now() - now;
    }
    return INT2NUM(resume_ended(selector));
}

/*
 * call-seq: selector.idle_duration -> Float
 *
 * The seconds that the last #select waited for the kernel.
 */
static VALUE idle_duration(VALUE self)
{
    return DBL2NUM((double)selector_of(self)->idle / 1e9);
}

/*
 * call-seq: selector.ready? -> true or false
 *
 * Whether the next #select has a fiber to switch to without polling.
 */
static VALUE ready_p(VALUE self)
{
    return ready(selector_of(self)) ? Qtrue : Qfalse;
}

/*
 * call-seq: selector.wakeup -> true or false
 *
 * Ends the wait of #select. Any thread may call this. Returns false if #select does not wait; a #select that is about
 * to wait then does not wait.
 */
static VALUE wakeup(VALUE self)
{
    struct selector *selector = selector_of(self);
    selector->wakeups++;
    if (!sleeps(selector)) return Qfalse;
    wakeup_signal(selector->poller.wakeup);
    return Qtrue;
}

/*
 * Document-class: Heddle::Selector
 *
 * Heddle's backends behind the interface of io-event's selectors: IO::Event::Selector::Heddle, by
 * <tt>require "heddle/selector"</tt>. Programs need not call its methods: Async's scheduler does.
 */
void Init_heddle_selector(void)
{
    id_pending_interrupt = rb_intern("pending_interrupt?");
    VALUE selector_class = rb_define_class_under(heddle_module, "Selector", rb_cObject);
    rb_define_alloc_func(selector_class, allocate);
    rb_define_method(selector_class, "initialize", initialize, 1);
    rb_define_method(selector_class, "loop", loop_fiber, 0);
    rb_define_method(selector_class, "backend", backend, 0);
    rb_define_method(selector_class, "close", close_selector, 0);
    rb_define_method(selector_class, "closed?", closed_p, 0);
    rb_define_method(selector_class, "select", select_events, -1);
    rb_define_method(selector_class, "idle_duration", idle_duration, 0);
    rb_define_method(selector_class, "ready?", ready_p, 0);
    rb_define_method(selector_class, "wakeup", wakeup, 0);
    selector_turns_define(selector_class);
    selector_io_define(selector_class);
    selector_process_define(selector_class);
}
