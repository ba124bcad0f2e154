// Heddle::Gate, an event count: fibers and threads of Ruby code wait for a change that any of them may make. A waiter
// checks its condition first and waits afterwards, and must not miss an opening in between: so openings are counted.
#include "scheduler/bindings.h"

#include "task/join.h"

struct gate {
    VALUE waiters;
    unsigned long openings;
};

static void gate_mark(void *pointer)
{
    rb_gc_mark_movable(((struct gate *)pointer)->waiters);
}

static void gate_compact(void *pointer)
{
    struct gate *gate = pointer;
    gate->waiters = rb_gc_location(gate->waiters);
}

static const rb_data_type_t gate_type = {
    .wrap_struct_name = "Heddle::Gate",
    .function = {.dmark = gate_mark, .dfree = RUBY_DEFAULT_FREE, .dcompact = gate_compact},
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

static VALUE gate_allocate(VALUE klass)
{
    struct gate *gate;
    VALUE self = TypedData_Make_Struct(klass, struct gate, &gate_type, gate);
    gate->waiters = Qnil;
    return self;
}

static struct gate *gate_of(VALUE self)
{
    return rb_check_typeddata(self, &gate_type);
}

/*
 * call-seq: gate.openings -> Integer
 *
 * The number of openings so far. Read it before checking the condition, and pass it to #wait.
 *
 * @api private
 */
static VALUE gate_openings(VALUE self)
{
    return ULONG2NUM(gate_of(self)->openings);
}

/*
 * call-seq: gate.wait(openings, timeout = nil) -> gate
 *
 * Sleeps until #open has been called more than +openings+ times, or until +timeout+ seconds are over. May return early.
 * In a root fiber it runs the thread's loop meanwhile.
 *
 * @api private
 */
static VALUE gate_wait(int argc, VALUE *argv, VALUE self)
{
    rb_check_arity(argc, 1, 2);
    struct gate *gate = gate_of(self);
    deadline_t deadline = deadline_after(deadline_now(), deadline_span(argc > 1 ? argv[1] : Qnil));
    if (gate->openings == NUM2ULONG(argv[0])) join_wait(self, &gate->waiters, deadline);
    return self;
}

/*
 * call-seq: gate.open -> gate
 *
 * Wakes all current waiters. Any thread may call it.
 *
 * @api private
 */
static VALUE gate_open(VALUE self)
{
    struct gate *gate = gate_of(self);
    gate->openings++;
    join_wake(self, gate->waiters);
    return self;
}

/*
 * Document-class: Heddle::Gate
 *
 * An event count: fibers and threads wait for a change that any of them may make.
 *
 * @api private
 */
void Init_heddle_gate(void)
{
    VALUE cGate = rb_define_class_under(heddle_module, "Gate", rb_cObject);
    rb_define_alloc_func(cGate, gate_allocate);
    rb_define_method(cGate, "openings", gate_openings, 0);
    rb_define_method(cGate, "wait", gate_wait, -1);
    rb_define_method(cGate, "open", gate_open, 0);
}
