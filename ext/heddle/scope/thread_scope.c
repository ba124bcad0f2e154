#include "scope/thread_scope.h"

#include "cancel/scope_fiber.h"
#include "loop/wake.h"
#include "os/fork.h"
#include "os/native_thread.h"
#include "os/background_thread.h"
#include "shims.h"

#include <pthread.h>
#include <string.h>

static const int64_t SECOND = 1000000000;

static ID id_chain, id_raise, id_alive, id_stopped, id_backtrace, id_handle_interrupt, id_set_name;
static VALUE sym_immediate, sym_never;

// ---- the chains

// The thread whose scope was armed last, and its chain, which the thread keeps: reading a thread variable is expensive.
// Cleared when the helper ends, because it would otherwise keep a dead thread alive.
static VALUE last_thread; // or 0
static struct scope_chain *last_chain;

struct scope_chain *thread_scope_chain(VALUE thread)
{
    if (thread == last_thread) return last_chain;
    VALUE object = rb_attr_get(thread, id_chain);
    if (!NIL_P(object)) return RTYPEDDATA_DATA(object);
    struct scope_chain *chain = scope_chain_new(&object);
    chain->thread = thread;
    rb_ivar_set(thread, id_chain, object);
    return chain;
}

// ---- the helper's sleep

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    deadline_t wake_at;
    bool interrupted;
} sleeper;

static struct timer_heap heap;
static VALUE helper; // the thread, or 0
static bool program_ends;
static unsigned forks;
static uint64_t armed; // scopes armed so far, to detect an idle second
static bool (*periodic)(deadline_t now);

// Marks scopes that nothing else marks: of a thread that has ended, or of a fiber that is never resumed.
static void mark_heap(void *unused)
{
    (void)unused;
    for (uint32_t i = 0; i < heap.size; i++) {
        const struct scope *scope = (const struct scope *)heap.nodes[i]; // its first member
        rb_gc_mark(scope->self);
        rb_gc_mark(scope->chain->thread);
    }
}

// Not WB_PROTECTED, and pinned, as the scopes themselves.
static const rb_data_type_t heap_type = {
    .wrap_struct_name = "Heddle::DeadlineHeap",
    .function = {.dmark = mark_heap},
    .flags = RUBY_TYPED_FREE_IMMEDIATELY,
};

static void init_sleeper(void)
{
    pthread_mutex_init(&sleeper.lock, NULL);
    native_condition_init(&sleeper.changed);
    sleeper.interrupted = false;
}

static void *sleep_without_gvl(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&sleeper.lock);
    while (!sleeper.interrupted && deadline_now() < sleeper.wake_at)
        native_condition_wait(&sleeper.changed, &sleeper.lock, sleeper.wake_at);
    sleeper.interrupted = false;
    pthread_mutex_unlock(&sleeper.lock);
    return NULL;
}

static void interrupt_sleep(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&sleeper.lock);
    sleeper.interrupted = true;
    pthread_cond_signal(&sleeper.changed);
    pthread_mutex_unlock(&sleeper.lock);
}

// Makes the helper wake at `at` or earlier. An earlier time stays set although its scope may be closed by then:
// otherwise a program that opens and closes scopes of a tenth of a second would wake the helper for each.
static void wake_by(deadline_t at)
{
    if (at >= sleeper.wake_at) return; // written with the GVL held; only the helper reads it without the GVL
    pthread_mutex_lock(&sleeper.lock);
    sleeper.wake_at = at;
    pthread_cond_signal(&sleeper.changed);
    pthread_mutex_unlock(&sleeper.lock);
}

// ---- the scopes of a thread

// Open scopes of all plain threads, including those of threads that ended inside a scope or that a child of fork lacks.
static size_t open_count;

bool thread_scopes_open(void)
{
    return open_count;
}

void thread_scope_disarm(struct scope *scope)
{
    timer_cancel(&heap, &scope->timer);
    open_count--;
}

// ---- raising in a thread

// The heap wants a function; the work is in fire, which fire_due calls for the scopes that it takes out of the heap.
static void expire(struct timer *timer)
{
    (void)timer;
}

// Puts the scope back into the heap. The scope may be there already, if its thread left an inner scope while the helper
// checked.
static void look_again(struct scope *scope)
{
    if (scope->timer.index) return;
    scope->retry = scope_next_retry(scope->retry);
    timer_add(&heap, &scope->timer, deadline_now() + (int64_t)scope->retry);
}

// Returns whether an exception that the helper raised has not arrived yet: Ruby sets the backtrace on arrival.
// Exceptions from others do not count: if the thread holds one back with a mask, that must not hold back our deadlines;
// and if one arrives first, it leaves the scope, which takes ours back. (Thread#pending_interrupt? with a class crashes
// Ruby 3.1.)
static bool on_its_way(VALUE error)
{
    return !NIL_P(error) && NIL_P(rb_funcall(error, id_backtrace, 0));
}

// One deadline's error at a time is enough: beside a busy thread many nested deadlines may fall due before their thread
// runs, and their errors would all meet the thread on its way out.
static bool wait_fails_already(const struct scope *scope, const struct scope_chain *chain)
{
    if (on_its_way(scope->sent)) return true;
    return scope->kind != SCOPE_TIMEOUT && chain->sent && on_its_way(chain->sent);
}

static VALUE call_raise(VALUE argument)
{
    struct scope *scope = (struct scope *)argument;
    return rb_funcall(scope->chain->thread, id_raise, 1, scope->sent);
}

static VALUE sent(VALUE argument)
{
    ((struct scope *)argument)->sending = false;
    return Qnil;
}

// Ruby may switch threads at the end of any method call, even within Thread#raise before the exception is in the
// thread's queue: a thread that leaves its scope meanwhile must wait for the rest of the call (thread_scope_take_back).
static void send_error(struct scope *scope)
{
    VALUE error = scope_error(scope);
    if (!scope->chain) return;
    // The caller's class made the error, in Ruby code. By now the thread may run a loop, and Thread#raise could hit any
    // of its tasks.
    if (loops_interrupt_root(scope->chain->thread)) return;
    scope->sent = error;
    if (scope->kind != SCOPE_TIMEOUT) scope->chain->sent = error;
    scope->sending = true;
    scope->failures++;
    scope->retry = 0; // check again soon
    rb_ensure(call_raise, (VALUE)scope, sent, (VALUE)scope);
}

static bool open_and_due(const struct scope *scope)
{
    return scope->chain && scope_due(scope->chain, 0) == scope;
}

// Puts the scope that is due into the heap, so that the helper raises its error. A scope has passed when its time is
// over; of a thread's passed scopes the outermost that no shield holds back is due. Only the due scope is in the heap:
// otherwise the helper would check 2,000 nested scopes again and again. Which scope is due changes when a timeout was
// raised, a shield ends, or a scope that contains others is closed.
static void rearm_due(struct scope_chain *chain)
{
    if (!chain->innermost || chain->innermost->earliest > chain->passed) return;
    struct scope *due = scope_due(chain, 0);
    if (!due || due->timer.index) return;
    due->retry = 0;
    timer_add(&heap, &due->timer, deadline_now());
    wake_by(0);
}

void thread_scope_close(struct scope *scope)
{
    struct scope_chain *chain = scope->chain;
    thread_scope_disarm(scope);
    if (scope_unlink(scope)) rearm_due(chain);
}

// ---- deadlines that a computing thread misses

static void (*miss_watcher)(VALUE thread, int64_t late, VALUE place);
static int64_t miss_limit;

void thread_scope_watch_misses(void (*missed)(VALUE thread, int64_t late, VALUE place), int64_t limit)
{
    miss_watcher = missed;
    miss_limit = limit;
}

static void note_miss(struct scope *scope, VALUE thread)
{
    int64_t late = deadline_now() - scope->at;
    if (!miss_watcher || scope->missed || late < miss_limit) return;
    scope->missed = true;
    VALUE place = rb_funcall(thread, id_backtrace, 0); // may let other threads run
    if (miss_watcher) miss_watcher(thread, late, place);
}

// ---- the scopes that are due

// Timeout.timeout interrupts any code in its block. A deadline fails only waits, in threads as in tasks: while the
// thread computes, the helper looks again later.
static void fire(struct scope *scope)
{
    HEDDLE_ASSERT(scope->chain);
    VALUE self = scope->self;
    struct scope_chain *chain = scope->chain;
    VALUE thread = chain->thread; // keeps the chain alive
    scope_expire(scope);
    if (scope_abandoned(scope)) thread_scope_close(scope);
    if (!scope->chain) return;
    // A scope of another fiber may become due at any time.
    if (!chain->other_fibers && !open_and_due(scope) && scope_due(chain, 0)) {
        rearm_due(chain);
        return;
    }
    if (scope->kind == SCOPE_TIMEOUT && scope->failures) return;
    if (RTEST(rb_funcall(thread, id_alive, 0)) && open_and_due(scope) && !loops_interrupt_root(thread)) {
        bool wanted = scope->kind == SCOPE_TIMEOUT || RTEST(rb_funcall(thread, id_stopped, 0));
        if (!wanted) note_miss(scope, thread);
        if (wanted && !wait_fails_already(scope, chain) && open_and_due(scope)) send_error(scope);
    }
    if (scope->chain && RTEST(rb_funcall(thread, id_alive, 0)) && scope->chain) {
        look_again(scope);
        if (scope->kind == SCOPE_TIMEOUT) rearm_due(chain);
    }
    RB_GC_GUARD(self);
    RB_GC_GUARD(thread);
}

static void fire_due(void)
{
    deadline_t now = deadline_now();
    while (timer_next(&heap) <= now) {
        struct scope *scope = (struct scope *)heap.nodes[0]; // its first member
        timer_cancel(&heap, &scope->timer);
        fire(scope);
    }
}

// ---- the helper's life

static VALUE thread_scope_watch(VALUE unused)
{
    (void)unused;
    uint64_t seen = armed - 1;
    deadline_t idle_since = deadline_now();
    for (;;) {
        fire_due();
        deadline_t now = deadline_now();
        if (periodic && !periodic(now)) periodic = NULL;
        if (heap.size || periodic || seen != armed) idle_since = now;
        seen = armed;
        if (now - idle_since >= SECOND) return Qnil;
        deadline_t next = timer_next(&heap);
        pthread_mutex_lock(&sleeper.lock);
        sleeper.wake_at = next < now + SECOND ? next : now + SECOND;
        pthread_mutex_unlock(&sleeper.lock);
        rb_nogvl(sleep_without_gvl, NULL, interrupt_sleep, NULL, 0);
    }
}

static VALUE start_helper(VALUE unused);

// A program may have killed the helper while deadlines of other threads were open: starts another helper. Not when the
// program ends, which kills all threads.
static VALUE thread_scope_forget(VALUE unused)
{
    (void)unused;
    if (helper != rb_thread_current()) return Qnil;
    helper = last_thread = 0;
    if (heap.size && !program_ends) start_helper(Qnil);
    return Qnil;
}

static VALUE serve(VALUE unused)
{
    return background_thread_serve(thread_scope_watch, unused);
}

static VALUE help(void *unused)
{
    (void)unused;
    return rb_ensure(serve, Qnil, thread_scope_forget, Qnil);
}

static void note_end(VALUE unused)
{
    (void)unused;
    program_ends = true;
}

// A child of fork has only the thread that forked, and only that thread's scopes.
static void discard_parents_side(void)
{
    struct timer_heap parents = heap;
    memset(&heap, 0, sizeof(heap));
    forks = fork_count();
    helper = last_thread = 0;
    periodic = NULL;
    init_sleeper();
    for (uint32_t i = 0; i < parents.size; i++)
        parents.nodes[i]->index = 0;
    timer_heap_free(&parents);
    struct scope_chain *chain = thread_scope_chain(rb_thread_current());
    for (struct scope *scope = chain->innermost; scope; scope = scope->outer) {
        scope->sending = false; // a helper that no longer exists was sending to this thread's queue
        if (scope->at != DEADLINE_NEVER) timer_add(&heap, &scope->timer, scope->at);
    }
}

static VALUE start_helper(VALUE unused)
{
    (void)unused;
    sleeper.wake_at = 0; // the helper checks the heap first
    VALUE thread = rb_thread_create(help, NULL);
    helper = thread;
    rb_funcall(thread, id_set_name, 1, rb_str_new_cstr("heddle deadlines"));
    return Qnil;
}

static void need_helper(void)
{
    if (forks != fork_count()) discard_parents_side();
    if (helper) return;
    start_helper(Qnil);
}

VALUE thread_scope_helper(void)
{
    return forks == fork_count() ? helper : 0;
}

void thread_scope_periodic(bool (*wanted)(deadline_t now))
{
    need_helper();
    periodic = wanted;
}

void thread_scope_arm(struct scope *scope, struct scope_chain *chain)
{
    if (scope->at != DEADLINE_NEVER) {
        need_helper(); // raises ThreadError if no thread can be started
        scope->timer.expire = expire;
        scope->chain = chain; // mark_heap needs the chain
        timer_add(&heap, &scope->timer, scope->at);
        last_thread = chain->thread;
        last_chain = chain;
        armed++;
        wake_by(scope->at);
    }
    open_count++;
}

// ---- taking back an exception that was raised in the thread

struct taking {
    struct scope *scope;
    VALUE error; // the one to take back
    VALUE other; // the last that a trap handler has raised meanwhile, or nil
};

static VALUE let_interrupt(VALUE unused)
{
    (void)unused;
    rb_thread_schedule();
    rb_thread_check_ints();
    return Qnil;
}

static VALUE thread_scope_take(RB_BLOCK_CALL_FUNC_ARGLIST(unused, argument))
{
    (void)unused, (void)argc, (void)argv, (void)blockarg;
    struct taking *taking = (struct taking *)argument;
    for (;;) {
        bool underway = taking->scope->sending;
        int state = 0;
        rb_protect(let_interrupt, Qnil, &state);
        if (!state && underway) continue;
        if (!state) return Qnil; // the exception has arrived before
        VALUE raised = rb_errinfo();
        if (!is_exception(raised)) rb_jump_tag(state); // a throw of a trap handler
        rb_set_errinfo(Qnil);
        if (raised != taking->error) {
            taking->other = raised;
            continue;
        }
        taking->scope->failures--;
        return Qnil;
    }
}

// Only the exception to be taken back may be raised: whatever else is pending (Thread#raise, Thread#kill, an outer
// timeout) stays pending, and is raised on the way out as if our exception had never been sent. Caught here, only the
// last of them would be left, and a kill or a throw could not be raised again.
void thread_scope_take_back(struct scope *scope)
{
    struct taking taking = {.scope = scope, .error = scope->sent, .other = Qnil};
    VALUE mask = rb_hash_new();
    rb_hash_aset(mask, rb_singleton_class(taking.error), sym_immediate);
    rb_hash_aset(mask, rb_cObject, sym_never);
    scope->sent = Qnil;
    rb_block_call(rb_cThread, id_handle_interrupt, 1, &mask, thread_scope_take, (VALUE)&taking);
    if (!NIL_P(taking.other)) rb_exc_raise(taking.other);
    RB_GC_GUARD(taking.error);
}

/*
 * call-seq: Heddle.keep_deadlines -> nil
 *
 * In a child of fork: starts the helper for the deadlines of the calling thread.
 *
 * @api private
 */
static VALUE keep_deadlines(VALUE self)
{
    (void)self;
    if (scope_timed(thread_scope_chain(rb_thread_current()))) need_helper();
    return Qnil;
}

void Init_heddle_thread_scope(void)
{
    id_chain = rb_intern("__heddle_scopes__");
    id_raise = rb_intern("raise");
    id_alive = rb_intern("alive?");
    id_stopped = rb_intern("stop?");
    id_backtrace = rb_intern("backtrace");
    id_handle_interrupt = rb_intern("handle_interrupt");
    id_set_name = rb_intern("name=");
    sym_immediate = ID2SYM(rb_intern("immediate"));
    sym_never = ID2SYM(rb_intern("never"));
    rb_gc_register_address(&helper);
    rb_gc_register_address(&last_thread);
    rb_set_end_proc(note_end, Qnil); // the last to be called of all that are set later
    rb_gc_register_mark_object(TypedData_Wrap_Struct(rb_cObject, &heap_type, &heap));
    init_sleeper();
    forks = fork_count();
    rb_define_singleton_method(heddle_module, "keep_deadlines", keep_deadlines, 0);
}
