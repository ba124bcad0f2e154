// Heddle::Scheduler, the Ruby class that binds a loop and its tasks to Fiber::Scheduler's hooks.
#include "scheduler/bindings.h"

#include "loop/callers.h"
#include "names/names.h"
#include "os/fork.h"
#include "os/trap_handlers.h"
#include "scheduler/attach.h"
#include "scheduler/bindings.h"
#include "scheduler/process.h"
#include "scheduler/timeout.h"
#include "scope/thread_scope.h"
#include "shims.h"
#include "task/cancel.h"
#include "task/carrier.h"
#include "task/closing.h"
#include "task/current.h"
#include "task/task_loop.h"
#include "task/task_run.h"

static VALUE deadlock_error(struct loop *loop);

/*
 * call-seq: Heddle::Scheduler.new -> scheduler
 *
 * A Fiber::Scheduler for Fiber.set_scheduler. May be built on another thread than it is set on; it belongs to the thread
 * that first uses it. The backend is the one that the environment's HEDDLE_BACKEND names, else the best that the kernel
 * allows.
 *
 * Raises ArgumentError for an unknown HEDDLE_BACKEND, Heddle::BackendUnavailable for one that is not to be had here.
 */
static VALUE initialize(VALUE self)
{
    struct loop *loop = loop_of(self);
    if (loop->backend) rb_raise(rb_eArgError, "this scheduler is initialized already");
    loop->backend = backend_choose();
    loop->deadlock_error = deadlock_error;
    socket_methods_define();
    return self;
}

/*
 * call-seq: scheduler.backend -> String
 *
 * +uring+, +epoll+ or +poll+.
 */
static VALUE backend(VALUE self)
{
    struct loop *loop = loop_of(self);
    return loop->backend ? rb_str_new_cstr(loop->backend->name) : Qnil;
}

/*
 * call-seq: Heddle::Scheduler.backends -> [String, ...]
 *
 * The backends that this build has and this kernel allows, best first.
 */
static VALUE backends(VALUE klass)
{
    (void)klass;
    return backend_available_names();
}

// ---- life

static VALUE run_closing(VALUE self)
{
    closing_run(self);
    return Qnil;
}

/*
 * call-seq: scheduler.close -> nil
 *
 * Runs what is scheduled to its end, then lets go of all descriptors. Ruby calls it when the thread ends and from
 * Fiber.set_scheduler(nil). Closing twice is harmless.
 *
 * Where the thread ends with an error, +exit+ or +abort+, and where a fiber calls +exit+, what is scheduled has one second
 * to end, and is cancelled then; where a signal or Thread#kill ends it, at once. A fiber that waits for ever must not keep alive
 * a process that is to end.
 *
 * Raises Heddle::WrongThread from another thread than the scheduler's, ThreadError in a task (which would wait for its own
 * end), and the SystemExit or signal that ended a task outside of any Heddle.run, unless the thread ends with an error of its own.
 */
static VALUE close_scheduler(VALUE self)
{
    struct loop *loop = loop_of(self);
    if (tasks_of(self)->detaching) {
        tasks_of(self)->detaching = false;
        return Qnil;
    }
    if (loop->closed) return Qnil;
    if (loop->fork_count == fork_count() && loop->backend_state) {
        loop_enter(loop); // only the thread whose fibers wait may take the kernel's side away
        if (loop->owner->self)
            rb_raise(rb_eThreadError, "%" PRIsVALUE " cannot close the scheduler that runs it", loop->owner->self);
        // Ruby closes one that is set. Of one that is not (a pool's), what the tasks wait for would stop the thread.
        if (NIL_P(rb_fiber_scheduler_get())) {
            scheduler_attached(self, run_closing, self);
        } else {
            closing_run(self);
        }
    } else {
        loop_close(loop);
        if (!NIL_P(tasks_of(self)->fatal)) rb_exc_raise(tasks_of(self)->fatal);
    }
    return Qnil;
}

/*
 * call-seq: scheduler.accept_posts -> scheduler
 *
 * @api private Makes ready for tasks that other threads start.
 */
static VALUE accept_posts(VALUE self)
{
    inbox_open(loop_entered(self));
    return self;
}

/*
 * call-seq: scheduler.closed? -> true or false
 */
static VALUE closed_p(VALUE self)
{
    return loop_of(self)->closed ? Qtrue : Qfalse;
}

// ---- hooks

/*
 * call-seq: scheduler.fiber(**options) { ... } -> Fiber
 *
 * What Fiber.schedule calls: a fresh fiber that runs the block at once, until it first waits. +options+ go to Fiber.new. The
 * caller's deadlines do not bind it, and it belongs to the Heddle.run that set this scheduler, if one did: to no run inside.
 */
static VALUE fiber(int argc, VALUE *argv, VALUE self)
{
    VALUE options;
    rb_scan_args(argc, argv, "0:", &options);
    if (!rb_block_given_p()) rb_raise(rb_eArgError, "Fiber.schedule needs a block");
    struct loop *loop = loop_entered(self);
    loop_admit_start(loop);
    // Neither the running task's deadline nor its run: a library starts its driver in whichever task asks first.
    VALUE task = task_create(rb_block_proc(), Qnil, self, loop, false);
    task_list(task_of(task), task_loop_of(loop)->run);
    return carrier_start(loop, task_of(task), true, options);
}

/*
 * call-seq: scheduler.block(blocker, timeout = nil) -> true or false
 *
 * Parks the fiber until #unblock; false when +timeout+ seconds are over first.
 */
static VALUE block(int argc, VALUE *argv, VALUE self)
{
    rb_check_arity(argc, 1, 2);
    struct loop *loop = loop_entered(self);
    VALUE timeout = argc > 1 ? argv[1] : Qnil;
    // Queue#pop(timeout:) and others pass on what their callers computed, which may be in the past.
    if (RB_FLOAT_TYPE_P(timeout) && RFLOAT_VALUE(timeout) < 0) timeout = INT2FIX(0);
    if (FIXNUM_P(timeout) && FIX2LONG(timeout) < 0) timeout = INT2FIX(0);
    return loop_block(loop, argv[0], deadline_span(timeout)) ? Qtrue : Qfalse;
}

/*
 * call-seq: scheduler.unblock(blocker, fiber) -> nil
 *
 * Makes a blocked fiber ready. Any thread may call it. For a fiber that is not blocked it is kept, once: the next #block of
 * that fiber, and a #kernel_sleep that Mutex#sleep calls, returns at once.
 */
static VALUE unblock(VALUE self, VALUE blocker, VALUE blocked)
{
    (void)blocker; // may differ from what `block` was given
    struct loop *loop = loop_of(self);
    if (!loop->closed) loop_unblock(loop, blocked);
    return Qnil;
}

/*
 * call-seq: scheduler.kernel_sleep(duration = nil) -> true
 *
 * Sleeps for +duration+ seconds, or until #unblock (Mutex#sleep is ended by it) when that is nil. Zero gives the turn to all that is ready.
 */
static VALUE kernel_sleep(int argc, VALUE *argv, VALUE self)
{
    rb_check_arity(argc, 0, 1);
    struct loop *loop = loop_entered(self);
    int64_t span = deadline_span(argc ? argv[0] : Qnil);
    loop->owner->deferred = false; // was of a Mutex#sleep that an exception ended
    bool only_fibers_end_it = loop->releasing_mutex && span == DEADLINE_NEVER;
    loop->releasing_mutex = false;
    if (span == 0) {
        loop_yield(loop);
    } else if (only_fibers_end_it) {
        loop_block(loop, Qnil, span);
    } else if (task_loop_of(loop)->visiting &&
               !called_by_kernel_sleep()) { // a signal may be missed while nobody is there
        loop_block(loop, Qnil, span);
    } else {
        loop_sleep(loop, span);
    }
    return Qtrue;
}

/*
 * call-seq: scheduler.process_wait(pid, flags) -> Process::Status
 */
static VALUE process_wait_hook(VALUE self, VALUE pid, VALUE flags)
{
    return process_wait(loop_entered(self), NUM2PIDT(pid), NUM2INT(flags));
}

/*
 * call-seq: scheduler.address_resolve(host) -> [String, ...] or nil
 *
 * Numeric addresses of a name, by getaddrinfo on a native thread.
 */
static VALUE address_resolve(VALUE self, VALUE host)
{
    return names_addresses(loop_entered(self), host);
}

/*
 * call-seq: scheduler.address_name(address, flags = 0) -> [host, service]
 *
 * @api private getnameinfo on a native thread, for an address as a String (Addrinfo#to_sockaddr).
 */
static VALUE address_name(int argc, VALUE *argv, VALUE self)
{
    rb_check_arity(argc, 1, 2);
    return names_of_address(loop_entered(self), argv[0], argc > 1 ? NUM2INT(argv[1]) : 0);
}

/*
 * call-seq: scheduler.fiber_interrupt(fiber, exception) -> true or false
 *
 * Raises +exception+ in a fiber that waits here, when it runs next; false for one that does not. Any thread may call it.
 * (Ruby >= 4.0 does, from IO#close.)
 */
static VALUE fiber_interrupt(VALUE self, VALUE interrupted, VALUE exception)
{
    return loop_interrupt_fiber(loop_of(self), interrupted, exception) ? Qtrue : Qfalse;
}

/*
 * call-seq: scheduler.yield -> true
 *
 * Gives the turn to all that is ready. (Ruby >= 4.0 calls it after it has handled a signal.)
 */
static VALUE yield_turn(VALUE self)
{
    loop_yield(loop_entered(self));
    return Qtrue;
}

/*
 * call-seq: scheduler.raise_in(fiber, exception) -> true or false
 *
 * @api private Raises +exception+ in a fiber that waits here, at once; comes back next. False for a
 * fiber that does not wait here.
 */
static VALUE raise_in(VALUE self, VALUE target, VALUE exception)
{
    return loop_raise(loop_entered(self), target, exception) ? Qtrue : Qfalse;
}

/*
 * call-seq: scheduler.kill(fiber) -> true or false
 *
 * @api private Cancels the task of this fiber, where no +rescue+ can stop it. False for a fiber that is no task's.
 */
static VALUE kill_fiber(VALUE self, VALUE target)
{
    return task_kill(loop_entered(self), target) ? Qtrue : Qfalse;
}

/*
 * call-seq: scheduler.waits?(fiber) -> true or false
 *
 * @api private Whether that fiber waits here: only the loop may switch to it then.
 */
static VALUE waits_p(VALUE self, VALUE asked)
{
    return loop_waits(loop_entered(self), asked) ? Qtrue : Qfalse;
}

/*
 * call-seq: scheduler.step_aside { ... } -> scheduler
 *
 * @api private For a block that switches to a fiber which waits here: the caller is ready meanwhile, and comes back.
 */
static VALUE step_out(VALUE self)
{
    rb_need_block();
    loop_step_aside(loop_entered(self));
    return self;
}

// ---- timeout_after

/*
 * call-seq: scheduler.timeout_after(duration, exception, message = nil) { |duration| ... } -> object
 *
 * What Timeout.timeout calls: raises +exception+ in the block's innermost wait once +duration+ seconds are over. nil stands for a
 * Timeout::Error that nothing in the block can rescue.
 */
static VALUE timeout_after(int argc, VALUE *argv, VALUE self)
{
    rb_check_arity(argc, 2, 3);
    loop_entered(self);
    return timeout_yield(argv[0], argv[1], argc > 2 ? argv[2] : Qnil);
}

// ---- what goes on inside

/*
 * call-seq: scheduler.tasks -> [Heddle::Task, ...]
 *
 * Those that have not ended, in the order of their start.
 */
static VALUE tasks(VALUE self)
{
    return task_loop_tasks(self);
}

static VALUE compose_deadlock_error(VALUE self)
{
    // Another thread may unblock a fiber, or start one; the helper raises here if there is a deadline to come.
    VALUE threads = rb_funcall(rb_cThread, rb_intern("list"), 0);
    VALUE helper = thread_scope_helper();
    long others = RARRAY_LEN(threads) - 1;
    if (helper && RTEST(rb_ary_includes(threads, helper))) others--;
    if (others > 0 || scope_timed(thread_scope_chain(rb_thread_current())) || trap_handlers_set()) return Qnil;
    return rb_funcall(heddle_module, rb_intern("deadlock_error"), 1, self);
}

static VALUE deadlock_error(struct loop *loop)
{
    int state = 0;
    VALUE error = rb_protect(compose_deadlock_error, loop->self, &state);
    if (!state) return error;
    // A handler of a signal may have raised it: it is for whoever called the outermost run, not for the task that looks.
    VALUE raised = rb_errinfo();
    if (!is_exception(raised) || !loop->root->wait) rb_jump_tag(state);
    rb_set_errinfo(Qnil);
    loop_interrupt_fiber(loop, loop->root->wait->fiber, raised);
    return Qnil;
}

/*
 * Document-class: Heddle::Scheduler
 *
 * A Fiber::Scheduler: the loop of one thread. Heddle.run makes one by itself; Fiber.set_scheduler takes it, too. Ruby calls its
 * hooks (block, io_wait, kernel_sleep and so on); programs have no use for them.
 */
void Init_heddle_scheduler(void)
{
    rb_define_alloc_func(heddle_cScheduler, task_loop_allocate);
    rb_undef_method(heddle_cScheduler, "initialize_copy");

    rb_define_singleton_method(heddle_cScheduler, "backends", backends, 0);
    rb_define_method(heddle_cScheduler, "initialize", initialize, 0);
    rb_define_method(heddle_cScheduler, "backend", backend, 0);
    rb_define_method(heddle_cScheduler, "close", close_scheduler, 0);
    rb_define_method(heddle_cScheduler, "scheduler_close", close_scheduler, 0);
    attach_define(heddle_cScheduler);
    rb_define_method(heddle_cScheduler, "accept_posts", accept_posts, 0);
    rb_define_method(heddle_cScheduler, "closed?", closed_p, 0);
    statistics_define(heddle_cScheduler);
    rb_define_method(heddle_cScheduler, "tasks", tasks, 0);

    rb_define_method(heddle_cScheduler, "fiber", fiber, -1);
    rb_define_method(heddle_cScheduler, "block", block, -1);
    rb_define_method(heddle_cScheduler, "unblock", unblock, 2);
    rb_define_method(heddle_cScheduler, "kernel_sleep", kernel_sleep, -1);
    rb_define_method(heddle_cScheduler, "process_wait", process_wait_hook, 2);
    rb_define_method(heddle_cScheduler, "address_resolve", address_resolve, 1);
    rb_define_method(heddle_cScheduler, "address_name", address_name, -1);
    rb_define_method(heddle_cScheduler, "fiber_interrupt", fiber_interrupt, 2);
    rb_define_method(heddle_cScheduler, "yield", yield_turn, 0);
    rb_define_method(heddle_cScheduler, "raise_in", raise_in, 2);
    rb_define_method(heddle_cScheduler, "kill", kill_fiber, 1);
    rb_define_method(heddle_cScheduler, "waits?", waits_p, 1);
    rb_define_method(heddle_cScheduler, "step_aside", step_out, 0);
    rb_define_method(heddle_cScheduler, "timeout_after", timeout_after, -1);
    hooks_io_define(heddle_cScheduler);
    io_close_define();
}
