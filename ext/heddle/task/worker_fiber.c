#include "task/worker_fiber.h"

#include "loop/pending_wakeup.h"
#include "loop/start.h"
#include "loop/wake.h"
#include "os/fork.h"
#include "shims.h"
#include "task/current.h"
#include "task/fiber_stack.h"
#include "task/task_loop.h"
#include "task/task_run.h"

// After a burst of tasks: WARM_LIMIT idle worker fibers keep the stack pages that they have touched, so that the next
// tasks start without page faults; IDLE_LIMIT worker fibers are kept at all.
enum { WARM_LIMIT = 1024, IDLE_LIMIT = 4096 };

static VALUE never; // {Object => :never}, for Thread.handle_interrupt
static ID id_handle_interrupt, id_new, id_keys, id_storage, id_aset, id_call;
static VALUE retire_predicates; // see Heddle::FiberPool.retire_if
static VALUE eFiberError;
static bool storage_supported; // Fiber#storage # RUBY_VERSION >= 3.2

// ---- clearing what a task must not leave to the next task

static void clear_locals(void)
{
    VALUE thread = rb_thread_current();
    VALUE keys = rb_funcall(thread, id_keys, 0); // Thread#keys are the fiber's: fiber-local
    for (long i = 0; i < RARRAY_LEN(keys); i++)
        rb_thread_local_aset(thread, rb_sym2id(RARRAY_AREF(keys, i)), Qnil);
}

static int collect_name(ID name, VALUE value, st_data_t names)
{
    (void)value;
    if (rb_is_instance_id(name)) rb_ary_push((VALUE)names, ID2SYM(name)); // names without an @ are Heddle's own
    return ST_CONTINUE;
}

static void clear_instance_variables(VALUE fiber)
{
    if (rb_ivar_count(fiber) == 0) return;
    VALUE names = rb_ary_new();
    rb_ivar_foreach(fiber, collect_name, (st_data_t)names);
    for (long i = 0; i < RARRAY_LEN(names); i++)
        rb_obj_remove_instance_variable(fiber, RARRAY_AREF(names, i));
}

static int remove_entry(VALUE key, VALUE value, VALUE unused)
{
    (void)value, (void)unused;
    rb_funcall(heddle_cFiber, id_aset, 2, key, Qnil);
    return ST_CONTINUE;
}

static int add_entry(VALUE key, VALUE value, VALUE unused)
{
    (void)unused;
    rb_funcall(heddle_cFiber, id_aset, 2, key, value);
    return ST_CONTINUE;
}

// Gives the running fiber a copy of that storage, or none. Entry by entry: Fiber#storage= warns that it is
// experimental, and to silence it for the moment would silence the whole process if an interrupt came then.
static void set_storage(VALUE storage)
{
    VALUE old = rb_funcall(rb_fiber_current(), id_storage, 0); // a copy
    if (!NIL_P(old)) rb_hash_foreach(old, remove_entry, Qnil);
    if (!NIL_P(storage)) rb_hash_foreach(storage, add_entry, Qnil);
    RB_GC_GUARD(old);
}

static VALUE ask_predicates(VALUE fiber)
{
    for (long i = 0; i < RARRAY_LEN(retire_predicates); i++) {
        if (RTEST(rb_funcall(RARRAY_AREF(retire_predicates, i), id_call, 1, fiber))) return Qtrue;
    }
    return Qfalse;
}

static VALUE warn_of_predicate(VALUE unused, VALUE error)
{
    (void)unused;
    rb_warn("heddle: cannot prepare a fiber for its next task: %" PRIsVALUE " (%" PRIsVALUE
            "); the fiber is not used again",
            error, rb_obj_class(error));
    return Qtrue;
}

static VALUE ask_and_warn(RB_BLOCK_CALL_FUNC_ARGLIST(unused, fiber))
{
    (void)unused, (void)argc, (void)argv, (void)blockarg;
    return rb_rescue(ask_predicates, fiber, warn_of_predicate, fiber);
}

// Returns whether a library that identifies work by its fiber wants this fiber to end, as it does if it raises. An
// interrupt must not be taken for its error: it is raised when this returns. The predicates do not wait, so no other
// fiber runs behind the mask, which is the thread's.
static bool wanted_dead(VALUE fiber)
{
    if (RARRAY_LEN(retire_predicates) == 0) return false;
    return RTEST(rb_block_call(rb_cThread, id_handle_interrupt, 1, &never, ask_and_warn, fiber));
}

static void clear(VALUE fiber)
{
    clear_locals();
    clear_instance_variables(fiber);
    if (storage_supported) set_storage(Qnil);
}

static bool reusable(struct loop *loop, VALUE fiber)
{
    if (loop->idle_count >= IDLE_LIMIT || loop->closed) return false;
    if (wanted_dead(fiber)) return false;
    clear(fiber);
    return true;
}

// ---- the two kinds of fiber

// `fresh`: the fiber has the storage of the fiber that started it. A fiber that ran a task before has no storage.
static void worker_fiber_run(struct loop *loop, struct task *task, bool fresh)
{
    if (task->status == TASK_QUEUED) { // otherwise it was cancelled before its start
        if (loop->pending_wakeups) pending_wakeup_take(loop, rb_fiber_current()); // it was for the fiber's last task
        if (loop->deferred) loop_forget_deferred(loop);
        loop->owner = &task->owner;
        if (loop->measuring) measure_start(loop);
        if (storage_supported && task->storage != Qundef && (fresh || !NIL_P(task->storage)))
            set_storage(task->storage);
        task_run(task);
    }
    task_loop_between_tasks(loop);
    if (loop->measuring) measure_start(loop);
}

static VALUE raise_result(VALUE error)
{
    rb_exc_raise(error);
}

// A child of fork has only the fiber that forked: an error that ends its task ends the process, in the same way and
// with the same status as without a loop.
static void end_child(const struct task *task)
{
    if (task->status != TASK_FAILED) return;
    int state = 0;
    rb_protect(raise_result, task->result, &state);
    ruby_stop(state);
}

/*
 * call-seq: Heddle::Scheduler.end_child(error)
 *
 * Ends a child of fork whose thread has finished its job: with the error, or normally with nil.
 *
 * @api private
 */
static VALUE end_child_of_thread(VALUE self, VALUE error)
{
    (void)self;
    int state = 0;
    if (!NIL_P(error)) rb_protect(raise_result, error, &state);
    ruby_stop(state);
}

// A fiber gets its task through loop->owner, not as its argument: Ruby keeps the argument alive as long as the fiber,
// and with it the task's result.
static VALUE run_one(RB_BLOCK_CALL_FUNC_ARGLIST(scheduler, unused))
{
    (void)unused, (void)argc, (void)argv, (void)blockarg;
    struct loop *loop = loop_of(scheduler);
    VALUE task = loop->owner->self;
    unsigned forks = fork_count();
    worker_fiber_run(loop, task_of(task), true);
    if (fork_count() != forks) end_child(task_of(task));
    RB_GC_GUARD(task);
    return Qnil;
}

// The state between two tasks.
struct pause {
    struct loop *loop;
    VALUE fiber;
    VALUE task;      // the task that has ended
    VALUE successor; // or nil
    bool over;
    bool reusable;
};

static VALUE start_successor(VALUE argument)
{
    struct pause *pause = (struct pause *)argument;
    worker_fiber_start(pause->loop, task_of(pause->successor), false, Qnil);
    return Qnil;
}

static VALUE pause_body(VALUE argument)
{
    struct pause *pause = (struct pause *)argument;
    int state = 0;
    pause->successor = task_successor(task_of(pause->task), &state);
    if (state) rb_jump_tag(state);
    pause->reusable = reusable(pause->loop, pause->fiber);
    pause->over = true;
    return Qnil;
}

static VALUE pause_end(VALUE argument)
{
    struct pause *pause = (struct pause *)argument;
    if (!pause->over && !NIL_P(pause->successor)) start_successor(argument);
    return Qnil;
}

// Between two tasks. Our code does not raise here, so an exception is an interrupt: it ends the fiber, and continues in
// the thread's root fiber. The successor, which has the pool's permit by then, starts on another fiber.
static void worker_fiber_settle(struct pause *pause)
{
    pause->successor = Qnil;
    pause->over = false;
    rb_ensure(pause_body, (VALUE)pause, pause_end, (VALUE)pause);
}

// A spare worker fiber starts without a task, for the owner `system`.
static VALUE run_many(RB_BLOCK_CALL_FUNC_ARGLIST(scheduler, unused))
{
    (void)unused, (void)argc, (void)argv, (void)blockarg;
    struct loop *loop = loop_of(scheduler);
    unsigned forks = fork_count();
    struct pause pause = {.loop = loop, .fiber = rb_fiber_current(), .successor = Qnil};
    for (bool fresh = true;; fresh = false) {
        pause.task = pause.successor;
        if (NIL_P(pause.task)) {
            if (!loop->owner->self) loop_idle(loop);
            pause.task = loop->owner->self;
        }
        worker_fiber_run(loop, task_of(pause.task), fresh);
        if (fork_count() != forks) {
            end_child(task_of(pause.task));
            return Qnil;
        }
        worker_fiber_settle(&pause);
        // Frees the stack pages that the task touched deeper than a waiting fiber needs: at the end of a burst these
        // pages are most of the memory.
        if (loop->idle_count >= WARM_LIMIT && NIL_P(pause.successor)) fiber_stack_release();
        if (!pause.reusable) {
            loop->statistics.retired++;
            if (!NIL_P(pause.successor)) start_successor((VALUE)&pause);
            return Qnil;
        }
    }
}

// ---- starting

// One Proc for all fibers of a kind; each fiber gets the scheduler when it starts. A block per fiber would cost four
// more objects to allocate, and to mark for as long as the fiber waits.
static VALUE one_proc, many_proc, inbox_proc;

// Not rb_fiber_new: on 3.1 that makes blocking fibers, which never reach a scheduler. `options`: keywords for
// Fiber.new, or nil.
static VALUE new_fiber(VALUE proc, VALUE options)
{
    int argc = NIL_P(options) ? 0 : 1;
    return rb_funcall_with_block_kw(heddle_cFiber, id_new, argc, &options, proc,
                                    argc ? RB_PASS_KEYWORDS : RB_NO_KEYWORDS);
}

struct start {
    struct loop *loop;
    struct task *task;
    VALUE fiber;
    VALUE options;
    bool fresh;
};

static VALUE map_limit(void)
{
    unsigned long limit;
    FILE *file = fopen("/proc/sys/vm/max_map_count", "re");
    bool known = file && fscanf(file, "%lu", &limit) == 1; // not without /proc, nor on other systems
    if (file) fclose(file);
    return known ? rb_sprintf(" of the %lu that vm.max_map_count allows this process", limit) : rb_str_new(NULL, 0);
}

// Ruby allocates a fiber's stack at its first run, and reports only the message of mmap or mprotect when that fails.
static VALUE rescue_fiber_error(VALUE argument, VALUE error)
{
    struct start *start = (struct start *)argument;
    if (start->task->status != TASK_QUEUED) rb_exc_raise(error);
    VALUE reason = rb_funcall(error, rb_intern("message"), 0);
    rb_raise(heddle_eLimitReached,
             "cannot start another fiber (%" PRIsVALUE
             "): %lu tasks have not ended, and each fiber takes two memory maps%" PRIsVALUE
             ". Raise their limit (on Linux the sysctl vm.max_map_count), or bound the tasks with a Heddle::FiberPool",
             reason, (unsigned long)task_loop_of(start->loop)->tasks.count, map_limit());
}

enum resume_order order_beside_external(const struct loop *loop)
{
    bool in_place_of_loop = loop->owner == loop->root || (loop->owner->self && task_of_owner(loop->owner)->pushed);
    return in_place_of_loop ? RESUME_FIRST : RESUME_LAST;
}

static enum resume_order order_beside(const struct task *task)
{
    return is_external(task) ? order_beside_external(task->owner.loop) : RESUME_SOON;
}

static VALUE run_fiber(VALUE argument)
{
    struct start *start = (struct start *)argument;
    loop_start(start->loop, &start->task->owner, start->fiber, start->loop->self, order_beside(start->task));
    return Qnil;
}

static VALUE start_body(VALUE argument)
{
    struct start *start = (struct start *)argument;
    struct loop *loop = start->loop;
    struct task *task = start->task;
    // Asked before loop->idle is read: it calls a method, in which a trap handler may start the last idle worker fiber.
    if (!start->fresh && loop->idle && storage_supported && task->storage == Qundef) task->storage = fiber_storage();
    if (!start->fresh && loop->idle) {
        loop->statistics.reused++;
        start->fiber = loop_continue_idle(loop, &task->owner, order_beside(task));
        return Qnil;
    }
    start->fiber = new_fiber(start->fresh ? one_proc : many_proc, start->options);
    return rb_rescue2(run_fiber, argument, rescue_fiber_error, argument, eFiberError, (VALUE)0);
}

// If anything kept the task from its start, nobody must wait for the task.
static VALUE start_end(VALUE argument)
{
    struct start *start = (struct start *)argument;
    if (start->task->status == TASK_QUEUED) task_end(start->task, TASK_WITHDRAWN, Qnil);
    return Qnil;
}

VALUE worker_fiber_start(struct loop *loop, struct task *task, bool fresh, VALUE options)
{
    struct start start = {.loop = loop, .task = task, .options = options, .fresh = fresh};
    loop->statistics.spawned++;
    rb_ensure(start_body, (VALUE)&start, start_end, (VALUE)&start);
    return start.fiber;
}

void worker_fiber_queue(struct loop *loop, struct task *task)
{
    while (!loop->idle) // a trap handler may take the new one at once
        loop_start(loop, loop->system, new_fiber(many_proc, Qnil), loop->self, RESUME_FIRST);
    loop->statistics.spawned++;
    task->pushed = true;
    loop_queue_idle(loop, &task->owner);
}

VALUE fiber_storage(void)
{
    return storage_supported ? rb_funcall(rb_fiber_current(), id_storage, 0) : Qundef;
}

// ---- starting from other threads: a fiber belongs to the thread that makes it

static VALUE start_posted(VALUE scheduler)
{
    struct loop *loop = loop_of(scheduler);
    for (;;) {
        struct task *task = task_of(task_loop_first_posted(loop));
        if (task->status == TASK_QUEUED) worker_fiber_start(loop, task, false, Qnil);
        // A task that was cancelled before its start still has a place in its pool, for another task.
        int state = 0;
        task_loop_take_posted(loop, task_started(task) ? Qnil : task_successor(task, &state));
        if (state) rb_jump_tag(state);
    }
    return Qnil;
}

// The exception is an interrupt, which continues to the thread's root. Another fiber takes this one's work.
static VALUE hand_inbox_over(VALUE scheduler)
{
    struct loop *loop = loop_of(scheduler);
    task_loop_of(loop)->inbox = 0;
    if (!loop->closed && loop->fork_count == fork_count()) inbox_open(loop);
    return Qnil;
}

static VALUE run_inbox(RB_BLOCK_CALL_FUNC_ARGLIST(scheduler, unused))
{
    (void)unused, (void)argc, (void)argv, (void)blockarg;
    tasks_of(scheduler)->inbox = rb_fiber_current();
    return rb_ensure(start_posted, scheduler, hand_inbox_over, scheduler);
}

// Again if an exception (of a TracePoint) ended the new fiber before run_inbox.
void inbox_open(struct loop *loop)
{
    while (!task_loop_of(loop)->inbox && !loop->closed)
        loop_start(loop, loop->system, new_fiber(inbox_proc, Qnil), loop->self, RESUME_SOON);
}

/*
 * call-seq: Heddle::Scheduler.retire_if(callable) -> callable
 *
 * Registers the callable for Heddle::FiberPool.retire_if.
 */
static VALUE retire_if(VALUE self, VALUE callable)
{
    (void)self;
    rb_ary_push(retire_predicates, callable);
    return callable;
}

// ---- the root fiber of a thread that runs one job after another

/*
 * call-seq: Heddle::Scheduler.root_fiber_begin(storage) -> nil
 *
 * Gives the calling fiber a storage: the one that Fiber#storage returned to the caller that submitted the job.
 *
 * @api private
 */
static VALUE root_fiber_begin(VALUE self, VALUE storage)
{
    (void)self;
    if (storage_supported) set_storage(storage); // a thread inherits the storage of the fiber that starts it
    return Qnil;
}

/*
 * call-seq: Heddle::Scheduler.root_fiber_end -> true or false
 *
 * Removes the locals, the instance variables and the storage of the calling fiber. False if a library that identifies
 * work by its fiber wants this fiber to end ({FiberPool.retire_if}): then the thread has to end.
 *
 * @api private
 */
static VALUE root_fiber_end(VALUE self)
{
    (void)self;
    VALUE fiber = rb_fiber_current();
    if (wanted_dead(fiber)) return Qfalse;
    clear(fiber);
    return Qtrue;
}

void Init_heddle_worker_fiber(void)
{
    id_handle_interrupt = rb_intern("handle_interrupt");
    id_new = rb_intern("new");
    id_keys = rb_intern("keys");
    id_storage = rb_intern("storage");
    id_aset = rb_intern("[]=");
    id_call = rb_intern("call");
    storage_supported = RTEST(rb_funcall(heddle_cFiber, rb_intern("method_defined?"), 1, ID2SYM(id_storage)));
    rb_gc_register_mark_object(eFiberError = rb_path2class("FiberError"));
    rb_gc_register_mark_object(retire_predicates = rb_ary_new());
    rb_gc_register_mark_object(never = rb_hash_new());
    rb_hash_aset(never, rb_cObject, ID2SYM(rb_intern("never")));
    rb_gc_register_mark_object(one_proc = rb_proc_new(run_one, Qnil));
    rb_gc_register_mark_object(many_proc = rb_proc_new(run_many, Qnil));
    rb_gc_register_mark_object(inbox_proc = rb_proc_new(run_inbox, Qnil));
    VALUE scheduler = rb_const_get(heddle_module, rb_intern("Scheduler"));
    rb_define_singleton_method(scheduler, "retire_if", retire_if, 1);
    rb_define_singleton_method(scheduler, "root_fiber_begin", root_fiber_begin, 1);
    rb_define_singleton_method(scheduler, "end_child", end_child_of_thread, 1);
    rb_define_singleton_method(scheduler, "root_fiber_end", root_fiber_end, 0);
}
