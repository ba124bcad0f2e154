// Heddle::Scheduler, the Ruby class that binds a loop and its tasks to Fiber::Scheduler's hooks.
#include "scheduler/bindings.h"

#include "loop/callers.h"
#include "loop/park.h"
#include "loop/start.h"
#include "loop/without_wait.h"
#include "loop/wake.h"
#include "resolver/names.h"
#include "os/fork.h"
#include "os/main_ractor.h"
#include "os/trap_handlers.h"
#include "scheduler/bindings.h"
#include "scheduler/process.h"
#include "scheduler/timeout.h"
#include "scope/thread_scope.h"
#include "shims.h"
#include "task/cancel.h"
#include "task/worker_fiber.h"
#include "task/closing.h"
#include "task/current.h"
#include "task/task_loop.h"
#include "task/task_run.h"

static VALUE deadlock_error(struct loop *loop);

/*
 * call-seq: Heddle::Scheduler.new -> scheduler
 *
 * A Fiber::Scheduler for Fiber.set_scheduler. It may be built on another thread than the one it is set on; it belongs
 * to the thread that first uses it. HEDDLE_BACKEND in the environment names its backend; the default is the best that
 * the kernel allows.
 *
 * Raises ArgumentError for an unknown HEDDLE_BACKEND, Heddle::BackendUnavailable for a backend that this build or
 * kernel lacks.
 */
static VALUE scheduler_initialize(VALUE self)
{
    struct loop *loop = loop_of(self);
    if (loop->poller.backend) rb_raise(rb_eArgError, "this scheduler is already initialized");
    loop->poller.backend = backend_choose();
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
    return loop->poller.backend ? rb_str_new_cstr(loop->poller.backend->name) : Qnil;
}

static VALUE list_open(VALUE unused)
{
    (void)unused;
    VALUE found = rb_ary_new();
    for (struct loop *loop = loops_first(); loop; loop = loop->next_live)
        rb_ary_push(found, rb_assoc_new(loop->self, loop->thread));
    return found;
}

static VALUE enable_gc(VALUE disabled)
{
    return RTEST(disabled) ? Qnil : rb_gc_enable();
}

/*
 * call-seq: Heddle::Scheduler.open -> [[scheduler, thread], ...]
 *
 * All loops that are open in this process, and the threads that they run on.
 *
 * @api private
 */
static VALUE open_schedulers(VALUE self)
{
    // A loop that the GC has found dead is listed until it is swept, and nobody may see its object again.
    VALUE disabled = rb_gc_disable(); // sweeps to the end
    main_ractor_release_swept();
    return rb_ensure(list_open, self, enable_gc, disabled);
}

/*
 * call-seq: Heddle::Scheduler.discard_parents -> nil
 *
 * In a child of fork: closes the child's copies of the kernel's objects of all loops. An io_uring that a child holds
 * open would keep its polls, and their sockets, after the parent has closed both.
 *
 * @api private
 */
static VALUE discard_parents(VALUE self)
{
    (void)self;
    pollers_discard_parents();
    return Qnil;
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

/*
 * call-seq: Heddle::Scheduler.refused_backends -> {String => SystemCallError}
 *
 * The backends that this build has and this kernel refuses, each with the kernel's answer.
 */
static VALUE refused_backends(VALUE klass)
{
    (void)klass;
    return backend_refusals();
}

// ---- life

/*
 * call-seq: scheduler.close -> nil
 *
 * Waits until all tasks have ended, then closes all descriptors. Ruby calls this when the thread ends, and from
 * Fiber.set_scheduler(nil). A second close does nothing.
 *
 * If the thread ends with an error, +exit+ or +abort+, or if a fiber calls +exit+, tasks have one second to end, and
 * are then cancelled. If a signal or Thread#kill ends the thread, they are cancelled at once: a fiber that waits for
 * ever must not keep alive a process that is to end.
 *
 * Raises Heddle::WrongThread on another thread than the scheduler's, and ThreadError in a task (which would wait for
 * its own end). Raises the SystemExit or signal that ended a task outside of any Heddle.run, unless the thread ends
 * with an error of its own.
 */
static VALUE close_scheduler(VALUE self)
{
    struct loop *loop = loop_of(self);
    if (loop->closed) return Qnil;
    if (loop->fork_count == fork_count() && loop->poller.backend_state) {
        loop_enter(loop); // only the thread whose fibers wait may close the backend
        if (loop->owner->self)
            rb_raise(rb_eThreadError, "%" PRIsVALUE " cannot close the scheduler that runs it", loop->owner->self);
        closing_run(self);
    } else {
        loop_close(loop);
        if (!NIL_P(tasks_of(self)->fatal)) rb_exc_raise(tasks_of(self)->fatal);
    }
    return Qnil;
}

/*
 * call-seq: scheduler.accept_posts -> scheduler
 *
 * Makes the loop ready for tasks that other threads start.
 *
 * @api private
 */
static VALUE accept_posts(VALUE self)
{
    inbox_open(loop_entered(self));
    return self;
}

/*
 * call-seq: scheduler.closed? -> true or false
 */
static VALUE scheduler_closed_p(VALUE self)
{
    return loop_of(self)->closed ? Qtrue : Qfalse;
}

// ---- hooks

/*
 * call-seq: scheduler.fiber(**options) { ... } -> Fiber
 *
 * Called by Fiber.schedule: runs the block at once, in a new fiber, until its first wait. +options+ go to Fiber.new.
 * The caller's deadlines do not bind the fiber. It belongs to the Heddle.run that set this scheduler, if any, and to no
 * run inside that one.
 */
static VALUE fiber(int argc, VALUE *argv, VALUE self)
{
    VALUE options;
    rb_scan_args(argc, argv, "0:", &options);
    if (!rb_block_given_p()) rb_raise(rb_eArgError, "Fiber.schedule needs a block");
    struct loop *loop = loop_entered(self);
    loop_check_pending_start(loop);
    // Inherits neither the running task's deadline nor its run: a library starts its driver in whichever task asks
    // first.
    VALUE task = task_create(rb_block_proc(), Qnil, self, loop, false);
    task_enlist(task_of(task), task_loop_of(loop)->run);
    return worker_fiber_start(loop, task_of(task), true, options);
}

/*
 * call-seq: scheduler.block(blocker, timeout = nil) -> true or false
 *
 * Parks the fiber until #unblock. Returns false when +timeout+ seconds are over.
 */
static VALUE block(int argc, VALUE *argv, VALUE self)
{
    rb_check_arity(argc, 1, 2);
    struct loop *loop = loop_entered(self);
    VALUE timeout = argc > 1 ? argv[1] : Qnil;
    // Callers such as Queue#pop(timeout:) pass on computed values, which may be negative.
    if (RB_FLOAT_TYPE_P(timeout) && RFLOAT_VALUE(timeout) < 0) timeout = INT2FIX(0);
    if (FIXNUM_P(timeout) && FIX2LONG(timeout) < 0) timeout = INT2FIX(0);
    return loop_block(loop, argv[0], deadline_span(timeout)) ? Qtrue : Qfalse;
}

/*
 * call-seq: scheduler.unblock(blocker, fiber) -> nil
 *
 * Makes a blocked fiber ready. Any thread may call it. For a fiber that is not blocked, the call is remembered once:
 * the fiber's next #block, or #kernel_sleep called by Mutex#sleep, returns at once.
 */
static VALUE unblock(VALUE self, VALUE blocker, VALUE blocked)
{
    (void)blocker; // may differ from the blocker given to `block`
    struct loop *loop = loop_of(self);
    if (!loop->closed) loop_unblock(loop, blocked);
    return Qnil;
}

/*
 * call-seq: scheduler.kernel_sleep(duration = nil) -> true
 *
 * Sleeps for +duration+ seconds; with nil until #unblock, which ends Mutex#sleep. Zero yields to all ready fibers.
 */
static VALUE kernel_sleep(int argc, VALUE *argv, VALUE self)
{
    rb_check_arity(argc, 0, 1);
    struct loop *loop = loop_entered(self);
    int64_t span = deadline_span_of_ruby(argc ? argv[0] : Qnil);
    loop->owner->deferred = false; // left by a Mutex#sleep that an exception ended
    bool only_fibers_end_it = loop->releasing_mutex && span == DEADLINE_NEVER;
    loop->releasing_mutex = false;
    if (span == 0) {
        loop_yield(loop);
    } else if (only_fibers_end_it) {
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
 * The numeric addresses of a host name, from getaddrinfo on a native thread.
 */
static VALUE address_resolve(VALUE self, VALUE host)
{
    return names_addresses(loop_entered(self), host);
}

/*
 * call-seq: scheduler.address_name(address, flags = 0) -> [host, service]
 *
 * getnameinfo on a native thread, for an address as a String (Addrinfo#to_sockaddr).
 *
 * @api private
 */
static VALUE address_name(int argc, VALUE *argv, VALUE self)
{
    rb_check_arity(argc, 1, 2);
    return names_of_address(loop_entered(self), argv[0], argc > 1 ? NUM2INT(argv[1]) : 0);
}

/*
 * call-seq: scheduler.fiber_interrupt(fiber, exception) -> true or false
 *
 * Raises +exception+ in a fiber that waits in this scheduler, when the fiber runs next. Returns false for another
 * fiber. Any thread may call it. (Ruby >= 4.0 does, from IO#close.)
 */
static VALUE fiber_interrupt(VALUE self, VALUE interrupted, VALUE exception)
{
    return loop_interrupt_fiber(loop_of(self), interrupted, exception) ? Qtrue : Qfalse;
}

/*
 * call-seq: scheduler.yield -> true
 *
 * Yields to all ready fibers. (Ruby >= 4.0 calls it after it has handled a signal.)
 */
static VALUE yield_to_others(VALUE self)
{
    loop_yield(loop_entered(self));
    return Qtrue;
}

/*
 * call-seq: scheduler.raise_in(fiber, exception) -> true or false
 *
 * Raises +exception+ at once in a fiber that waits in this scheduler; the caller continues next. Returns false for
 * another fiber.
 *
 * @api private
 */
static VALUE raise_in(VALUE self, VALUE target, VALUE exception)
{
    return loop_raise(loop_entered(self), target, exception, RESUME_SOON) ? Qtrue : Qfalse;
}

/*
 * call-seq: scheduler.kill(fiber) -> true or false
 *
 * Cancels the task of this fiber so that no +rescue+ can stop the cancellation. Returns false if the fiber has no task.
 *
 * @api private
 */
static VALUE kill_fiber(VALUE self, VALUE target)
{
    struct loop *loop = loop_entered(self);
    return task_kill(loop, target) || loop_kill(loop, target) ? Qtrue : Qfalse;
}

/*
 * call-seq: scheduler.waits?(fiber) -> true or false
 *
 * Returns whether that fiber waits in this scheduler: then only the loop may switch to it.
 *
 * @api private
 */
static VALUE waits_p(VALUE self, VALUE asked)
{
    return loop_waits(loop_entered(self), asked) ? Qtrue : Qfalse;
}

/*
 * call-seq: scheduler.step_aside { ... } -> scheduler
 *
 * For a block that switches to a fiber which waits in this scheduler: the caller stays ready, and continues later.
 *
 * @api private
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
 * Called by Timeout.timeout: raises +exception+ in the block's innermost wait once +duration+ seconds are over. nil
 * stands for a Timeout::Error that nothing in the block can rescue.
 */
static VALUE timeout_after(int argc, VALUE *argv, VALUE self)
{
    rb_check_arity(argc, 2, 3);
    loop_entered(self);
    return timeout_yield(argv[0], argv[1], argc > 2 ? argv[2] : Qnil);
}

// ---- inspection

/*
 * call-seq: scheduler.tasks -> [Heddle::Task, ...]
 *
 * The tasks that have not ended, in the order of their start.
 */
static VALUE tasks(VALUE self)
{
    return task_list_objects(&tasks_of(self)->tasks);
}

// Another thread may unblock or start a fiber, or a deadline is to come, for which the helper raises here, or a signal.
// A thread of Heddle's own that does neither says so by a thread variable.
static bool waits_for_others(void)
{
    VALUE threads = rb_funcall(rb_cThread, rb_intern("list"), 0);
    VALUE helper = thread_scope_helper();
    long others = RARRAY_LEN(threads) - 1;
    if (helper && RTEST(rb_ary_includes(threads, helper))) others--;
    VALUE bystander = ID2SYM(rb_intern("heddle_wakes_nobody"));
    for (long i = 0; i < RARRAY_LEN(threads); i++) {
        if (RTEST(rb_funcall(RARRAY_AREF(threads, i), rb_intern("thread_variable_get"), 1, bystander))) others--;
    }
    return others > 0 || scope_timed(thread_scope_chain(rb_thread_current())) || trap_handlers_set();
}

static VALUE compose_deadlock_error(VALUE self)
{
    if (tasks_of(self)->externals) return Qnil; // another library's task may wait for ever: that library's rules apply
    if (!deadline_simulated() && waits_for_others()) return Qnil;
    return rb_funcall(heddle_module, rb_intern("deadlock_error"), 1, self);
}

static VALUE deadlock_error(struct loop *loop)
{
    if (external_tasks_leave_root(loop)) return Qundef;
    int state = 0;
    VALUE error = rb_protect(compose_deadlock_error, loop->self, &state);
    if (!state) return error;
    // A signal handler may have raised the error. It belongs to the caller of the outermost run, not to the task that
    // polls.
    VALUE raised = rb_errinfo();
    if (!is_exception(raised) || !loop->root->wait) rb_jump_tag(state);
    rb_set_errinfo(Qnil);
    loop_interrupt_fiber(loop, loop->root->wait->fiber, raised);
    return Qnil;
}

static void hooks_define(VALUE scheduler_class)
{
    rb_define_alloc_func(scheduler_class, task_loop_allocate);
    rb_undef_method(scheduler_class, "initialize_copy");
    rb_define_method(scheduler_class, "backend", backend, 0);
    installed_define(scheduler_class);
    rb_define_method(scheduler_class, "accept_posts", accept_posts, 0);
    statistics_define(scheduler_class);
    rb_define_method(scheduler_class, "tasks", tasks, 0);

    rb_define_method(scheduler_class, "block", block, -1);
    rb_define_method(scheduler_class, "unblock", unblock, 2);
    rb_define_method(scheduler_class, "kernel_sleep", kernel_sleep, -1);
    rb_define_method(scheduler_class, "process_wait", process_wait_hook, 2);
    rb_define_method(scheduler_class, "address_resolve", address_resolve, 1);
    rb_define_method(scheduler_class, "address_name", address_name, -1);
    rb_define_method(scheduler_class, "fiber_interrupt", fiber_interrupt, 2);
    rb_define_method(scheduler_class, "raise_in", raise_in, 2);
    rb_define_method(scheduler_class, "kill", kill_fiber, 1);
    rb_define_method(scheduler_class, "waits?", waits_p, 1);
    rb_define_method(scheduler_class, "step_aside", step_out, 0);
    rb_define_method(scheduler_class, "timeout_after", timeout_after, -1);
    hooks_io_define(scheduler_class);
    io_select_define(scheduler_class);
}

static ID id_equipped; // of a class itself, not of one that inherits from it, whose hooks may be its own

// For an object of another library's class.
static VALUE start_loop(VALUE self)
{
    scheduler_initialize(self);
    VALUE klass = rb_obj_class(self);
    if (RTEST(rb_attr_get(klass, id_equipped))) loop_of(self)->plain_class = klass;
    return self;
}

/*
 * call-seq: Heddle::Scheduler.equip(klass) -> klass
 *
 * Makes the instances of another library's class of schedulers loops of Heddle's, with its hooks. The class says when a
 * loop begins and ends (#start_loop, #close_loop). To be called before the first instance is made.
 *
 * @api private
 */
static VALUE equip(VALUE self, VALUE klass)
{
    (void)self;
    rb_gc_register_mark_object(klass); // loops compare their class with it, so it must not move
    hooks_define(klass);
    rb_define_private_method(klass, "start_loop", start_loop, 0);
    rb_define_private_method(klass, "close_loop", close_scheduler, 0);
    rb_define_private_method(klass, "start_fiber", fiber, -1);
    external_tasks_define(klass);
    rb_include_module(klass, heddle_mLoop);
    rb_ivar_set(klass, id_equipped, Qtrue);
    return klass;
}

/*
 * Document-class: Heddle::Scheduler
 *
 * A Fiber::Scheduler: the loop of one thread. Heddle.run makes one by itself; Fiber.set_scheduler also accepts one.
 * Ruby calls its hooks (block, io_wait, kernel_sleep and so on); programs need not call them.
 */
void Init_heddle_scheduler(void)
{
    rb_include_module(heddle_cScheduler, heddle_mLoop);
    rb_funcall(heddle_module, rb_intern("private_constant"), 1, ID2SYM(rb_intern("Loop")));
    hooks_define(heddle_cScheduler);
    rb_define_singleton_method(heddle_cScheduler, "backends", backends, 0);
    rb_define_singleton_method(heddle_cScheduler, "refused_backends", refused_backends, 0);
    rb_define_singleton_method(heddle_cScheduler, "open", open_schedulers, 0);
    rb_define_singleton_method(heddle_cScheduler, "discard_parents", discard_parents, 0);
    rb_define_method(heddle_cScheduler, "initialize", scheduler_initialize, 0);
    rb_define_method(heddle_cScheduler, "close", close_scheduler, 0);
    rb_define_method(heddle_cScheduler, "scheduler_close", close_scheduler, 0);
    rb_define_method(heddle_cScheduler, "closed?", scheduler_closed_p, 0);
    rb_define_method(heddle_cScheduler, "fiber", fiber, -1);
    rb_define_method(heddle_cScheduler, "yield", yield_to_others, 0); // an equipped class has its own answer
    error_kept_define();
    io_close_define();
    id_equipped = rb_intern("__heddle_equipped__");
    rb_define_singleton_method(heddle_cScheduler, "equip", equip, 1);
}
