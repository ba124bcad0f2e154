// Waits for a lock for a C library that asks through a callback whether to try again (SQLite's busy handler). An
// exception must not pass through the library's frames: it would leave the library's locks locked.
#include "os/gvl.h"
#include "loop/interrupt.h"
#include "references.h"
#include "scheduler/bindings.h"
#include "scope/scope.h"
#include "shims.h"
#include "task/current.h"

struct busy_wait {
    int64_t limit;    // nanoseconds that one wait may take
    deadline_t until; // the end of the current wait
    VALUE error;      // an exception that was kept from the library, or nil
    bool ended;       // by something that is still pending: the next wait raises it
};

// Nanoseconds: the first nap and the longest. Nothing tells when the lock is free.
static const int64_t FIRST = 1000000;
static const int64_t LONGEST = 10000000;

static ID id_sleep;

static void busy_wait_references(void *pointer, reference_function *each)
{
    struct busy_wait *busy = pointer;
    each(&busy->error);
}

REFERENCES(busy_wait)

static size_t busy_wait_memsize(const void *pointer)
{
    (void)pointer;
    return sizeof(struct busy_wait);
}

static const rb_data_type_t busy_type = {
    .wrap_struct_name = "Heddle::BusyWait",
    .function = {.dmark = busy_wait_mark,
                 .dfree = RUBY_DEFAULT_FREE,
                 .dsize = busy_wait_memsize,
                 .dcompact = busy_wait_compact},
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

static VALUE busy_wait_allocate(VALUE klass)
{
    struct busy_wait *busy;
    VALUE self = TypedData_Make_Struct(klass, struct busy_wait, &busy_type, busy);
    busy->error = Qnil;
    return self;
}

static struct busy_wait *busy_of(VALUE self)
{
    return rb_check_typeddata(self, &busy_type);
}

/*
 * call-seq: Heddle::BusyWait.new(seconds) -> wait
 *
 * A handler for SQLite3::Database#busy_handler that waits for a lock for +seconds+ (Numeric). Other threads, and in a
 * task other tasks, continue meanwhile.
 *
 * @api private
 */
static VALUE busy_wait_initialize(VALUE self, VALUE seconds)
{
    busy_of(self)->limit = deadline_span(seconds);
    return self;
}

static void *nap_without_gvl(void *span)
{
    gvl_poll(NULL, 0, *(int64_t *)span);
    return span;
}

static VALUE check_interrupts(VALUE unused)
{
    rb_thread_check_ints();
    return unused;
}

// Keeps an exception for BusyWait#settle. A kill or a throw is not an exception, and cannot be kept.
static bool busy_wait_keep(VALUE self, int state)
{
    if (!state) return false;
    VALUE error = rb_errinfo();
    if (!is_exception(error)) rb_jump_tag(state);
    rb_set_errinfo(Qnil);
    RB_OBJ_WRITE(self, &busy_of(self)->error, error);
    return true;
}

// In a plain thread: exceptions of Thread#raise, Thread#kill and the helper stay in the thread's queue, and are raised
// as soon as the library has returned. No method is called to look for them, because Ruby 3.1 would raise them there.
// Signal handlers run in the main thread, and here while the main thread waits here.
static bool nap_in_thread(VALUE self, int64_t span)
{
    rb_thread_call_without_gvl2(nap_without_gvl, &span, RUBY_UBF_IO, NULL);
    if (deadline_in_force() <= deadline_now()) return busy_of(self)->ended = true;
    VALUE thread = rb_thread_current();
    if (!rb_thread_interrupted(thread)) return false;
    if (thread != rb_thread_main() || !rb_thread_check_trap_pending()) return true;
    int state = 0;
    rb_protect(check_interrupts, Qnil, &state);
    return busy_wait_keep(self, state);
}

static VALUE sleep_for(VALUE seconds)
{
    return rb_funcall(rb_mKernel, id_sleep, 1, seconds);
}

static VALUE sleep_in_shield(VALUE seconds)
{
    struct scope *scope = scope_new(SCOPE_SHIELD, DEADLINE_NEVER);
    VALUE self = scope->self;
    scope_open(scope, scope_chain_current(), DEADLINE_NEVER);
    VALUE result = scope_call(scope, sleep_for, seconds);
    RB_GC_GUARD(self);
    return result;
}

// In a task a shield keeps outer deadlines from raising during the nap; under another scheduler nothing can. The shield
// has no limit: a nap may end much later than it should, where tasks compute or the machine is busy.
static bool nap_in_fiber(VALUE self, bool ours, int64_t span)
{
    int state = 0;
    VALUE seconds = DBL2NUM((double)span / 1e9);
    if (!ours) {
        rb_protect(sleep_for, seconds, &state);
        return busy_wait_keep(self, state);
    }
    rb_protect(sleep_in_shield, seconds, &state);
    if (busy_wait_keep(self, state)) return true;
    struct task *task = task_current();
    return busy_of(self)->ended = task ? owner_pending(&task->owner) : deadline_in_force() <= deadline_now();
}

/*
 * call-seq: wait.call(count) -> true or false
 *
 * Waits for a moment. Returns true to try again; false to give up, because the time is over or something has ended the
 * wait. +count+ is 0 when the wait begins.
 *
 * @api private
 */
static VALUE busy_wait_call(VALUE self, VALUE count)
{
    struct busy_wait *busy = busy_of(self);
    int tries = NUM2INT(count);
    deadline_t now = deadline_now();
    if (tries == 0) {
        busy->until = deadline_after(now, busy->limit);
        busy->error = Qnil;
        busy->ended = false;
    }
    if (now >= busy->until) return Qfalse;
    int64_t span = tries < 4 ? FIRST << tries : LONGEST;
    if (span > LONGEST) span = LONGEST;
    if (span > busy->until - now) span = busy->until - now;
    struct context context = context_of_fiber();
    bool over = NIL_P(context.scheduler) ? nap_in_thread(self, span) : nap_in_fiber(self, context.loop, span);
    return over ? Qfalse : Qtrue;
}

/*
 * call-seq: wait.settle -> nil
 *
 * Raises what has ended the wait, if anything has. Call it when the library has returned.
 *
 * @api private
 */
static VALUE busy_wait_settle(VALUE self)
{
    struct busy_wait *busy = busy_of(self);
    VALUE error = busy->error;
    bool ended = busy->ended;
    busy->error = Qnil;
    busy->ended = false;
    if (!NIL_P(error)) rb_exc_raise(error);
    if (ended) deadline_check();
    return Qnil;
}

/*
 * Document-class: Heddle::BusyWait
 *
 * A wait for a lock of SQLite that neither stops other threads and tasks nor lets an exception pass through SQLite.
 *
 * @api private
 */
void Init_heddle_busy_wait(void)
{
    id_sleep = rb_intern("sleep");
    VALUE cBusyWait = rb_define_class_under(heddle_module, "BusyWait", rb_cObject);
    rb_define_alloc_func(cBusyWait, busy_wait_allocate);
    rb_define_method(cBusyWait, "initialize", busy_wait_initialize, 1);
    rb_define_method(cBusyWait, "call", busy_wait_call, 1);
    rb_define_method(cBusyWait, "settle", busy_wait_settle, 0);
    rb_funcall(heddle_module, rb_intern("private_constant"), 1, ID2SYM(rb_intern("BusyWait")));
}
