// Heddle::EventCount, an event count: fibers and threads of Ruby code wait for a change that any of them may make. A
// waiter checks its condition first and waits afterwards, and must not miss an advance in between: so these are
// counted (D. P. Reed, R. K. Kanodia: Synchronization with Eventcounts and Sequencers, 1979).
#include "heddle.h"
#include "references.h"
#include "task/join.h"

struct event_count {
    VALUE waiters;
    unsigned long advances;
};

static void event_count_references(void *pointer, reference_function *each)
{
    struct event_count *events = pointer;
    each(&events->waiters);
}

REFERENCES(event_count)

static const rb_data_type_t event_count_type = {
    .wrap_struct_name = "Heddle::EventCount",
    .function = {.dmark = event_count_mark, .dfree = RUBY_DEFAULT_FREE, .dcompact = event_count_compact},
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

static VALUE event_count_allocate(VALUE klass)
{
    struct event_count *events;
    VALUE self = TypedData_Make_Struct(klass, struct event_count, &event_count_type, events);
    events->waiters = Qnil;
    return self;
}

static struct event_count *event_count_of(VALUE self)
{
    return rb_check_typeddata(self, &event_count_type);
}

/*
 * call-seq: event_count.count -> Integer
 *
 * How often #advance was called. Read it before checking the condition, and pass it to #wait.
 *
 * @api private
 */
static VALUE event_count_read(VALUE self)
{
    return ULONG2NUM(event_count_of(self)->advances);
}

/*
 * call-seq: event_count.wait(count, timeout = nil) -> event_count
 *
 * Sleeps until #advance has been called more than +count+ times, or until +timeout+ seconds are over. May return early.
 * In a root fiber it runs the thread's loop meanwhile.
 *
 * @api private
 */
static VALUE event_count_wait(int argc, VALUE *argv, VALUE self)
{
    rb_check_arity(argc, 1, 2);
    struct event_count *events = event_count_of(self);
    deadline_t deadline = deadline_after(deadline_now(), deadline_span(argc > 1 ? argv[1] : Qnil));
    if (events->advances == NUM2ULONG(argv[0])) join_wait(self, &events->waiters, deadline);
    return self;
}

/*
 * call-seq: event_count.advance -> event_count
 *
 * Wakes all current waiters. Any thread may call it.
 *
 * @api private
 */
static VALUE event_count_advance(VALUE self)
{
    struct event_count *events = event_count_of(self);
    events->advances++;
    join_wake(self, events->waiters);
    return self;
}

/*
 * Document-class: Heddle::EventCount
 *
 * An event count: fibers and threads wait for a change that any of them may make.
 *
 * @api private
 */
void Init_heddle_event_count(void)
{
    VALUE cEventCount = rb_define_class_under(heddle_module, "EventCount", rb_cObject);
    rb_define_alloc_func(cEventCount, event_count_allocate);
    rb_define_method(cEventCount, "count", event_count_read, 0);
    rb_define_method(cEventCount, "wait", event_count_wait, -1);
    rb_define_method(cEventCount, "advance", event_count_advance, 0);
}
