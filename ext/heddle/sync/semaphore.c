#include "sync/semaphore.h"

#include "loop/measuring.h"
#include "os/main_ractor.h"
#include "scope/deadline_scope.h"
#include "sync/pools.h"
#include "task/current.h"
#include "task/join.h"

static VALUE ePoolClosed;
static ID id_timeout;

// A waiter is an Array of the answer (true: has a permit, false: closed, nil: waits) and of the fibers to wake.
enum { WAITER_ANSWER, WAITER_SLEEPERS };

void semaphore_init(struct semaphore *semaphore, VALUE self)
{
    *semaphore =
        (struct semaphore){.self = self, .waiters = Qnil, .permits = 1, .forks = fork_count(), .listener = Qnil};
    permit_use_add(semaphore);
}

void semaphore_free(struct semaphore *semaphore)
{
    permit_use_remove(semaphore);
}

void semaphore_references(void *pointer, reference_function *each)
{
    struct semaphore *semaphore = pointer;
    each(&semaphore->self);
    each(&semaphore->waiters);
    each(&semaphore->listener);
}

REFERENCES(semaphore)

static void forget_holders(struct semaphore *semaphore)
{
    memset(semaphore->holders, 0, sizeof(semaphore->holders));
    semaphore->noted = false;
}

void semaphore_discard_parents(struct semaphore *semaphore)
{
    semaphore->forks = fork_count();
    semaphore->taken = 0;
    semaphore->waiters = Qnil;
    semaphore->waiting = 0;
    forget_holders(semaphore);
}

// ---- who has a permit, for reports

void semaphore_note_holder(struct semaphore *semaphore)
{
    if (!(measuring_bits() & MEASURE_RECORDS)) return;
    const struct task *task = task_current();
    for (int i = 0; task && i < HOLDERS; i++) {
        if (semaphore->holders[i]) continue;
        semaphore->holders[i] = task->owner.number;
        semaphore->noted = true;
        break;
    }
}

static void forget_holder(struct semaphore *semaphore)
{
    if (!semaphore->noted) return;
    if (semaphore->taken == 0) forget_holders(semaphore);
    const struct task *task = task_current();
    for (int i = 0; task && i < HOLDERS; i++) {
        if (semaphore->holders[i] != task->owner.number) continue;
        semaphore->holders[i] = 0;
        break;
    }
}

VALUE semaphore_holders(const struct semaphore *semaphore)
{
    VALUE numbers = rb_ary_new();
    for (int i = 0; i < HOLDERS; i++) {
        if (semaphore->holders[i]) rb_ary_push(numbers, ULL2NUM(semaphore->holders[i]));
    }
    return numbers;
}

// Also one whose `waiters` are no longer the semaphore's, since a child of fork has replaced them.
static void semaphore_forget_waiter(struct semaphore *semaphore, VALUE waiters, VALUE number)
{
    rb_hash_delete(waiters, number);
    if (waiters == semaphore->waiters) semaphore->waiting = (long)RHASH_SIZE(waiters);
}

struct semaphore_waiter {
    VALUE number, waiter;
};

static int semaphore_first(VALUE number, VALUE waiter, VALUE first)
{
    *(struct semaphore_waiter *)first = (struct semaphore_waiter){number, waiter};
    return ST_STOP;
}

// Answers the longest waiter; `state` as for protect_next. Does not use Hash#shift: when a method
// called from C returns, Ruby raises what another thread has sent, and waiter and permit would be lost.
static void semaphore_answer_first(struct semaphore *semaphore, VALUE answer, int *state)
{
    struct semaphore_waiter first = {Qnil, Qnil};
    rb_hash_foreach(semaphore->waiters, semaphore_first, (VALUE)&first);
    semaphore_forget_waiter(semaphore, semaphore->waiters, first.number);
    if (answer == Qtrue) semaphore->taken++;
    rb_ary_store(first.waiter, WAITER_ANSWER, answer);
    join_wake_all(semaphore->self, rb_ary_entry(first.waiter, WAITER_SLEEPERS), state);
    RB_GC_GUARD(first.waiter);
}

static void semaphore_hand_out(struct semaphore *semaphore)
{
    int state = 0;
    while (semaphore->taken < semaphore->permits && semaphore_waiting(semaphore))
        semaphore_answer_first(semaphore, Qtrue, &state);
    if (semaphore->spare && semaphore->taken < semaphore->permits) semaphore->spare(semaphore->listener, &state);
    if (state) rb_jump_tag(state);
}

void semaphore_release(struct semaphore *semaphore)
{
    HEDDLE_ASSERT(semaphore->taken > 0);
    semaphore->taken--;
    forget_holder(semaphore);
    semaphore_hand_out(semaphore);
}

void semaphore_listen(struct semaphore *semaphore, VALUE listener, void (*spare)(VALUE listener, int *state))
{
    RB_OBJ_WRITE(semaphore->self, &semaphore->listener, listener);
    semaphore->spare = spare;
}

void semaphore_close(struct semaphore *semaphore)
{
    int state = 0;
    semaphore->closed = true;
    while (semaphore_waiting(semaphore))
        semaphore_answer_first(semaphore, Qfalse, &state);
    if (state) rb_jump_tag(state);
}

struct semaphore_request {
    struct semaphore *semaphore;
    VALUE waiters, number, waiter;
    deadline_t until, began;
    unsigned forks;
    bool over; // the wait ended without an exception
};

static VALUE semaphore_wait(VALUE argument)
{
    struct semaphore_request *request = (struct semaphore_request *)argument;
    VALUE sleepers = rb_ary_entry(request->waiter, WAITER_SLEEPERS);
    while (NIL_P(rb_ary_entry(request->waiter, WAITER_ANSWER)) && request->forks == fork_count()) {
        if (request->until != DEADLINE_NEVER && request->until <= deadline_now()) break;
        join_wait(request->semaphore->self, &sleepers, request->until);
    }
    request->over = true;
    return Qnil;
}

// Even if the wait raised: a permit that was handed over during it is the caller's, or goes to the next waiter.
static VALUE semaphore_wait_end(VALUE argument)
{
    const struct semaphore_request *request = (const struct semaphore_request *)argument;
    if (request->forks != fork_count()) return Qnil;
    semaphore_forget_waiter(request->semaphore, request->waiters, request->number);
    permit_use_waited(request->semaphore, deadline_now() - request->began);
    if (!request->over && rb_ary_entry(request->waiter, WAITER_ANSWER) == Qtrue) semaphore_release(request->semaphore);
    return Qnil;
}

enum semaphore_answer semaphore_acquire(struct semaphore *semaphore, deadline_t until)
{
    for (;;) {
        if (semaphore_try(semaphore)) {
            semaphore_note_holder(semaphore);
            return SEMAPHORE_TAKEN;
        }
        if (semaphore->closed) return SEMAPHORE_CLOSED;
        if (NIL_P(semaphore->waiters)) RB_OBJ_WRITE(semaphore->self, &semaphore->waiters, rb_hash_new());
        struct semaphore_request request = {.semaphore = semaphore,
                                            .waiters = semaphore->waiters,
                                            .waiter = rb_assoc_new(Qnil, rb_hash_new()),
                                            .number = ULL2NUM(++semaphore->requests),
                                            .until = until,
                                            .began = deadline_now(),
                                            .forks = semaphore->forks};
        rb_hash_aset(request.waiters, request.number, request.waiter);
        semaphore->waiting = (long)RHASH_SIZE(request.waiters);
        rb_ensure(semaphore_wait, (VALUE)&request, semaphore_wait_end, (VALUE)&request);
        VALUE answer = rb_ary_entry(request.waiter, WAITER_ANSWER);
        if (request.forks != fork_count()) continue; // a trap handler has forked during the wait
        if (NIL_P(answer)) return SEMAPHORE_LATE;
        if (!RTEST(answer)) return SEMAPHORE_CLOSED;
        semaphore_note_holder(semaphore);
        return SEMAPHORE_HANDED;
    }
}

// ---- Heddle::Semaphore

static void semaphore_release_record(void *pointer)
{
    if (main_ractor_releases(pointer, semaphore_release_record)) return;
    semaphore_free(pointer);
    xfree(pointer);
}

static size_t semaphore_memsize(const void *pointer)
{
    (void)pointer;
    return sizeof(struct semaphore);
}

static const rb_data_type_t semaphore_type = {
    .wrap_struct_name = "Heddle::Semaphore",
    .function = {.dmark = semaphore_mark,
                 .dfree = semaphore_release_record,
                 .dsize = semaphore_memsize,
                 .dcompact = semaphore_compact},
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

static VALUE semaphore_allocate(VALUE klass)
{
    struct semaphore *semaphore;
    VALUE self = TypedData_Make_Struct(klass, struct semaphore, &semaphore_type, semaphore);
    semaphore_init(semaphore, self);
    pools_add(self);
    return self;
}

static struct semaphore *semaphore_of(VALUE self)
{
    struct semaphore *semaphore = rb_check_typeddata(self, &semaphore_type);
    if (semaphore->forks != fork_count()) semaphore_discard_parents(semaphore);
    return semaphore;
}

static long semaphore_count(VALUE permits)
{
    if (!FIXNUM_P(permits))
        rb_raise(rb_eTypeError, "a semaphore's permits must be an Integer, not %+" PRIsVALUE, permits);
    if (FIX2LONG(permits) < 0) rb_raise(rb_eArgError, "a semaphore cannot have %ld permits", FIX2LONG(permits));
    return FIX2LONG(permits);
}

/*
 * call-seq: Heddle::Semaphore.new(permits)
 *
 * @param permits [Integer] the most permits that are taken at once, 0 or more
 */
static VALUE semaphore_initialize(VALUE self, VALUE permits)
{
    semaphore_of(self)->permits = semaphore_count(permits);
    return self;
}

struct semaphore_holder {
    struct semaphore *semaphore;
    unsigned forks;
};

static VALUE semaphore_leave(VALUE argument)
{
    const struct semaphore_holder *holder = (const struct semaphore_holder *)argument;
    if (holder->forks == fork_count()) semaphore_release(holder->semaphore);
    return Qnil;
}

// With a permit. Ruby checks for interrupts at the end of a method, not between here and the block: without a block the
// caller may lose the permit, with a block it cannot.
static VALUE semaphore_entered(VALUE self, struct semaphore *semaphore, VALUE without_block)
{
    if (!rb_block_given_p()) return without_block;
    struct semaphore_holder holder = {.semaphore = semaphore, .forks = semaphore->forks};
    VALUE value = rb_ensure(yield_nothing, Qnil, semaphore_leave, (VALUE)&holder);
    RB_GC_GUARD(self);
    return value;
}

/*
 * call-seq:
 *   semaphore.acquire(timeout: nil) { … } -> the block's value
 *   semaphore.acquire(timeout: nil) -> semaphore
 *
 * Waits for a permit, calls the block and gives the permit back. Those who wait get permits in the order of their
 * calls. An exception from outside (a deadline, a cancel, Thread#raise, Thread#kill) leaves the wait without a permit.
 *
 * Without a block the caller keeps the permit until #release. Then Thread#raise may interrupt between this call
 * and what follows it, so that nobody releases the permit: prefer the block.
 *
 * +timeout+: seconds to wait for a permit; the block is not bound by it.
 *
 * @raise [DeadlineExceeded] when the timeout ends first; [PoolClosed] after #close
 */
static VALUE semaphore_acquire_method(int argc, VALUE *argv, VALUE self)
{
    struct semaphore *semaphore = semaphore_of(self);
    VALUE options, timeout = Qundef;
    if (argc > 0) {
        rb_scan_args(argc, argv, "0:", &options);
        if (!NIL_P(options)) rb_get_kwargs(options, &id_timeout, 0, 1, &timeout);
    }
    int64_t span = deadline_span(timeout == Qundef ? Qnil : timeout);
    switch (semaphore_acquire(semaphore, deadline_in(span))) {
    case SEMAPHORE_CLOSED: rb_raise(ePoolClosed, "this semaphore is closed");
    case SEMAPHORE_LATE:
        deadline_check(); // a deadline around the call has passed, too
        rb_raise(heddle_eDeadlineExceeded, "none of %ld permits became free in %g s", semaphore->permits,
                 (double)span / 1e9);
    default: return semaphore_entered(self, semaphore, self);
    }
}

/*
 * call-seq:
 *   semaphore.try_acquire { … } -> the block's value, or nil
 *   semaphore.try_acquire -> true or false
 *
 * Like #acquire, but does not wait: with no permit free it returns nil, or false without a block.
 */
static VALUE semaphore_try_method(VALUE self)
{
    struct semaphore *semaphore = semaphore_of(self);
    if (!semaphore_try(semaphore)) return rb_block_given_p() ? Qnil : Qfalse;
    semaphore_note_holder(semaphore);
    return semaphore_entered(self, semaphore, Qtrue);
}

/*
 * call-seq: semaphore.release -> semaphore
 *
 * Gives back a permit of an #acquire or #try_acquire without a block. Any fiber and any thread may call this.
 *
 * @raise [ThreadError] when no permit is taken, as in a child of fork
 */
static VALUE semaphore_release_method(VALUE self)
{
    struct semaphore *semaphore = semaphore_of(self);
    if (semaphore->taken == 0) rb_raise(rb_eThreadError, "no permit of this semaphore is taken");
    semaphore_release(semaphore);
    return self;
}

/*
 * call-seq: semaphore.close -> semaphore
 *
 * Refuses requests from now on: callers that wait get PoolClosed. Permits that are taken stay so until their release.
 */
static VALUE semaphore_close_method(VALUE self)
{
    semaphore_close(semaphore_of(self));
    return self;
}

/* call-seq: semaphore.closed? -> true or false */
static VALUE semaphore_closed_p(VALUE self)
{
    return semaphore_of(self)->closed ? Qtrue : Qfalse;
}

/* call-seq: semaphore.permits -> Integer, the most permits that are taken at once */
static VALUE semaphore_permits(VALUE self)
{
    return LONG2NUM(semaphore_of(self)->permits);
}

/*
 * call-seq: semaphore.permits = count
 *
 * From now on so many permits may be taken at once. Those that are taken stay so.
 */
static VALUE semaphore_set_permits(VALUE self, VALUE permits)
{
    struct semaphore *semaphore = semaphore_of(self);
    semaphore->permits = semaphore_count(permits);
    semaphore_hand_out(semaphore);
    return permits;
}

/* call-seq: semaphore.available -> Integer, how many permits can be taken without a wait */
static VALUE semaphore_available(VALUE self)
{
    const struct semaphore *semaphore = semaphore_of(self);
    return LONG2NUM(semaphore->taken < semaphore->permits ? semaphore->permits - semaphore->taken : 0);
}

/* call-seq: semaphore.waiting -> Integer, how many callers wait */
static VALUE semaphore_waiting_method(VALUE self)
{
    return SIZET2NUM(semaphore_waiting(semaphore_of(self)));
}

/* @api private semaphore.holders -> [Integer, ...]: numbers of tasks that have a permit, see semaphore.h */
static VALUE holders(VALUE self)
{
    return semaphore_holders(semaphore_of(self));
}

/* call-seq: semaphore.inspect -> String */
static VALUE semaphore_inspect(VALUE self)
{
    const struct semaphore *semaphore = semaphore_of(self);
    return rb_sprintf("#<%" PRIsVALUE " %ld of %ld taken, %zu waiting%s>", rb_obj_class(self), semaphore->taken,
                      semaphore->permits, semaphore_waiting(semaphore), semaphore->closed ? ", closed" : "");
}

/*
 * Document-class: Heddle::Semaphore
 *
 * A number of permits for tasks, fibers of other schedulers and plain threads alike. Callers that find none wait, and
 * get theirs in the order of their calls. A child of fork begins with all permits.
 *
 * @example
 *   UPLOADS = Heddle::Semaphore.new(5)
 *   UPLOADS.acquire { client.put(file) }
 */
void Init_heddle_semaphore(void)
{
    ePoolClosed = rb_const_get(heddle_module, rb_intern("PoolClosed"));
    rb_gc_register_mark_object(ePoolClosed);
    id_timeout = rb_intern("timeout");
    VALUE cSemaphore = rb_define_class_under(heddle_module, "Semaphore", rb_cObject);
    rb_define_alloc_func(cSemaphore, semaphore_allocate);
    rb_undef_method(cSemaphore, "initialize_copy");
    rb_define_method(cSemaphore, "initialize", semaphore_initialize, 1);
    rb_define_method(cSemaphore, "acquire", semaphore_acquire_method, -1);
    rb_define_method(cSemaphore, "try_acquire", semaphore_try_method, 0);
    rb_define_method(cSemaphore, "release", semaphore_release_method, 0);
    rb_define_method(cSemaphore, "close", semaphore_close_method, 0);
    rb_define_method(cSemaphore, "closed?", semaphore_closed_p, 0);
    rb_define_method(cSemaphore, "permits", semaphore_permits, 0);
    rb_define_method(cSemaphore, "permits=", semaphore_set_permits, 1);
    rb_define_method(cSemaphore, "available", semaphore_available, 0);
    rb_define_method(cSemaphore, "waiting", semaphore_waiting_method, 0);
    rb_define_method(cSemaphore, "holders", holders, 0);
    rb_define_method(cSemaphore, "inspect", semaphore_inspect, 0);
}
