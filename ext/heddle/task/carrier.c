#include "task/carrier.h"

#include "loop/early_wake.h"
#include "os/fork.h"
#include "shims.h"
#include "task/bindings.h"
#include "task/current.h"
#include "task/fiber_stack.h"
#include "task/task_loop.h"
#include "task/task_run.h"

// After a burst: so many idle carriers keep the stack that they have touched, so that they start the next tasks without page
// faults; so many are kept at all.
enum { WARM_LIMIT = 1024, IDLE_LIMIT = 4096 };

static ID id_new, id_keys, id_storage, id_set_storage, id_aref, id_aset, id_call;
static VALUE retire_predicates; // see Heddle::FiberPool.retire_if
static VALUE mWarning, eFiberError;
static VALUE sym_experimental;
static bool storage_supported; // Fiber#storage # RUBY_VERSION >= 3.2

// ---- what a task must not leave to the next one

static void clear_locals(void)
{
    VALUE thread = rb_thread_current();
    VALUE keys = rb_funcall(thread, id_keys, 0); // of the fiber: Thread#keys are fiber-local
    for (long i = 0; i < RARRAY_LEN(keys); i++)
        rb_thread_local_aset(thread, rb_sym2id(RARRAY_AREF(keys, i)), Qnil);
}

static int collect_name(ID name, VALUE value, st_data_t names)
{
    (void)value;
    if (rb_is_instance_id(name)) rb_ary_push((VALUE)names, ID2SYM(name)); // others are ours
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

// Fiber#storage= is the only way and warns that it is experimental, which a user can do nothing about.
static void set_storage(VALUE fiber, VALUE storage)
{
    VALUE warned = rb_funcall(mWarning, id_aref, 1, sym_experimental);
    if (RTEST(warned)) rb_funcall(mWarning, id_aset, 2, sym_experimental, Qfalse);
    rb_funcall(fiber, id_set_storage, 1, storage);
    if (RTEST(warned)) rb_funcall(mWarning, id_aset, 2, sym_experimental, Qtrue);
}

static void clear_storage(VALUE fiber)
{
    if (storage_supported && !NIL_P(rb_funcall(fiber, id_storage, 0))) set_storage(fiber, Qnil);
}

// A library that knows the fiber by its identity wants it dead.
static bool wanted_dead(VALUE fiber)
{
    for (long i = 0; i < RARRAY_LEN(retire_predicates); i++) {
        if (RTEST(rb_funcall(RARRAY_AREF(retire_predicates, i), id_call, 1, fiber))) return true;
    }
    return false;
}

static void clear(VALUE fiber)
{
    clear_locals();
    clear_instance_variables(fiber);
    clear_storage(fiber);
}

static bool reusable(struct loop *loop, VALUE fiber)
{
    if (loop->idle_count >= IDLE_LIMIT || loop->closed) return false;
    if (wanted_dead(fiber)) return false;
    clear(fiber);
    return true;
}

// ---- the two kinds of fiber

// `fresh`: the fiber has what it got from whoever started it; one that ran a task before has no storage.
static void run(struct loop *loop, struct task *task, bool fresh)
{
    if (task->status != TASK_QUEUED) return;                          // cancelled before its start
    if (loop->early_wakes) early_wake_take(loop, rb_fiber_current()); // meant the fiber's last task
    loop->owner = &task->owner;
    if (storage_supported && task->storage != Qundef) {
        if (!NIL_P(task->storage)) {
            set_storage(rb_fiber_current(), task->storage);
        } else if (fresh) {
            clear_storage(rb_fiber_current());
        }
    }
    task_run(task);
    task_loop_between_tasks(loop);
}

static VALUE raise_result(VALUE error)
{
    rb_exc_raise(error);
}

// A child of fork has no other fiber than the one that forked: what ends its task ends the process, in the way and with
// the status that it would have without a loop.
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
 * @api private Ends a child of fork that has come to the end of its thread's job: with the error, or in order with nil.
 */
static VALUE end_child_of_thread(VALUE self, VALUE error)
{
    (void)self;
    int state = 0;
    if (!NIL_P(error)) rb_protect(raise_result, error, &state);
    ruby_stop(state);
}

static VALUE run_one(RB_BLOCK_CALL_FUNC_ARGLIST(task_object, unused))
{
    (void)unused, (void)argc, (void)argv, (void)blockarg;
    struct task *task = task_of(task_object);
    unsigned forks = fork_count();
    run(task->owner.loop, task, true);
    if (fork_count() != forks) end_child(task);
    return Qnil;
}

// What is done between two tasks.
struct pause {
    struct loop *loop;
    VALUE fiber;
    VALUE task;      // has ended
    VALUE successor; // or nil
    bool settled;    // the pool that the task belongs to knows of its end
    bool reusable;
};

static VALUE start_successor(VALUE argument)
{
    struct pause *pause = (struct pause *)argument;
    carrier_start(pause->loop, task_of(pause->successor), false, Qnil);
    return Qnil;
}

static VALUE settle_body(VALUE argument)
{
    struct pause *pause = (struct pause *)argument;
    pause->successor = task_successor(task_of(pause->task));
    pause->settled = true;
    return Qnil;
}

// Thread#kill or Thread#raise has struck in the pool's code: once more, or the pool has one place less from now on.
static VALUE settle_end(VALUE argument)
{
    struct pause *pause = (struct pause *)argument;
    if (pause->settled) return Qnil;
    pause->successor = task_successor(task_of(pause->task));
    if (!NIL_P(pause->successor)) start_successor(argument);
    pause->successor = Qnil;
    return Qnil;
}

static VALUE pause_body(VALUE argument)
{
    struct pause *pause = (struct pause *)argument;
    pause->settled = NIL_P(task_of(pause->task)->on_end);
    if (!pause->settled) rb_ensure(settle_body, argument, settle_end, argument);
    pause->reusable = reusable(pause->loop, pause->fiber);
    return Qnil;
}

// What goes wrong between two tasks is nobody's error: it is said, and the fiber is not used again. An interrupt,
// Thread#kill, and all that strikes in the code of a pool, which raises nothing itself, goes on to the thread's root.
static void protect(VALUE (*body)(VALUE), struct pause *pause)
{
    int state = 0;
    rb_protect(body, (VALUE)pause, &state);
    if (!state) return;
    VALUE error = rb_errinfo();
    pause->reusable = false;
    if (!pause->settled || !RTEST(rb_obj_is_kind_of(error, rb_eStandardError))) rb_jump_tag(state);
    rb_set_errinfo(Qnil);
    rb_warn("heddle: after a task: %" PRIsVALUE " (%" PRIsVALUE "); its fiber is not used again", error,
            rb_obj_class(error));
}

static VALUE run_many(RB_BLOCK_CALL_FUNC_ARGLIST(task_object, unused))
{
    (void)unused, (void)argc, (void)argv, (void)blockarg;
    unsigned forks = fork_count();
    struct pause pause = {.loop = task_of(task_object)->owner.loop, .fiber = rb_fiber_current(), .task = task_object};
    struct loop *loop = pause.loop;
    for (bool fresh = true;; fresh = false) {
        run(loop, task_of(pause.task), fresh);
        if (fork_count() != forks) {
            end_child(task_of(pause.task));
            return Qnil;
        }
        pause.successor = Qnil;
        protect(pause_body, &pause);
        // Before those that still wait go as deep as this one went: at the end of a burst that is the most memory of all.
        if (loop->idle_count >= WARM_LIMIT && NIL_P(pause.successor)) fiber_stack_release();
        if (!pause.reusable) {
            loop->statistics.retired++;
            if (!NIL_P(pause.successor)) protect(start_successor, &pause);
            return Qnil;
        }
        if (NIL_P(pause.successor)) {
            loop_idle(loop);
            pause.task = loop->owner->self;
        } else {
            pause.task = pause.successor;
        }
    }
}

// ---- starting

// One Proc for all fibers of a kind; what each is for it gets when it starts. A block of its own would be four objects more to
// allocate, and to mark for as long as the fiber waits.
static VALUE one_proc, many_proc, carry_proc;

// Not rb_fiber_new: on 3.1 that makes blocking fibers, which never reach a scheduler. Options as Fiber.new's, or nil.
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

static unsigned long map_limit(void)
{
    unsigned long limit = 0;
    FILE *file = fopen("/proc/sys/vm/max_map_count", "re");
    if (!file) return 0;
    if (fscanf(file, "%lu", &limit) != 1) limit = 0;
    fclose(file);
    return limit;
}

// Ruby gives a fiber its stack when it runs first, and says of a refusal only what mmap or mprotect said.
static VALUE rescue_fiber_error(VALUE argument, VALUE error)
{
    struct start *start = (struct start *)argument;
    if (start->task->status != TASK_QUEUED) rb_exc_raise(error);
    VALUE reason = rb_funcall(error, rb_intern("message"), 0);
    rb_raise(heddle_eLimitReached,
             "cannot start another fiber (%" PRIsVALUE
             "): %lu tasks have not ended, and each fiber takes two memory maps of the %lu that vm.max_map_count "
             "allows this process. Raise it (sysctl vm.max_map_count), or bound the tasks with a Heddle::FiberPool",
             reason, (unsigned long)task_loop_of(start->loop)->count, map_limit());
}

static VALUE run_fiber(VALUE argument)
{
    struct start *start = (struct start *)argument;
    loop_start(start->loop, start->fiber, start->task->owner.self);
    return Qnil;
}

static VALUE start_body(VALUE argument)
{
    struct start *start = (struct start *)argument;
    struct loop *loop = start->loop;
    struct task *task = start->task;
    if (!start->fresh && loop->idle) {
        loop->statistics.reused++;
        if (storage_supported && task->storage == Qundef) task->storage = fiber_storage();
        start->fiber = loop_continue_idle(loop, &task->owner);
        return Qnil;
    }
    start->fiber = new_fiber(start->fresh ? one_proc : many_proc, start->options);
    return rb_rescue2(run_fiber, argument, rescue_fiber_error, argument, eFiberError, (VALUE)0);
}

// Whatever kept the task from its start: nobody must wait for it.
static VALUE start_end(VALUE argument)
{
    struct start *start = (struct start *)argument;
    if (start->task->status == TASK_QUEUED) task_forget(start->task);
    return Qnil;
}

VALUE carrier_start(struct loop *loop, struct task *task, bool fresh, VALUE options)
{
    struct start start = {.loop = loop, .task = task, .options = options, .fresh = fresh};
    loop->statistics.spawned++;
    rb_ensure(start_body, (VALUE)&start, start_end, (VALUE)&start);
    return start.fiber;
}

VALUE fiber_storage(void)
{
    return storage_supported ? rb_funcall(rb_fiber_current(), id_storage, 0) : Qundef;
}

// ---- starting from other threads: a fiber belongs to the thread that makes it

static VALUE successor_of(VALUE argument)
{
    struct pause *pause = (struct pause *)argument;
    pause->successor = Qnil;
    pause->successor = task_successor(task_of(pause->task));
    return Qnil;
}

static VALUE carry(RB_BLOCK_CALL_FUNC_ARGLIST(scheduler, unused))
{
    (void)unused, (void)argc, (void)argv, (void)blockarg;
    struct loop *loop = loop_of(scheduler);
    struct pause pause = {.loop = loop, .fiber = rb_fiber_current(), .settled = true};
    task_loop_between_tasks(loop);
    for (;;) {
        pause.task = task_loop_next_posted(loop);
        // One that was cancelled meanwhile still has a place in its pool, for another.
        while (!NIL_P(pause.task) && task_of(pause.task)->status != TASK_QUEUED) {
            protect(successor_of, &pause);
            pause.task = pause.successor;
        }
        pause.successor = pause.task;
        if (!NIL_P(pause.successor)) protect(start_successor, &pause);
    }
    return Qnil;
}

void inbox_open(struct loop *loop)
{
    struct task_loop *tasks = task_loop_of(loop);
    if (tasks->inbox) return;
    tasks->inbox = new_fiber(carry_proc, Qnil);
    loop_start(loop, tasks->inbox, loop->self);
}

/*
 * call-seq: Heddle::Scheduler.retire_if(callable) -> callable
 *
 * What Heddle::FiberPool.retire_if registers.
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
 * @api private Gives the calling fiber a storage: what Fiber#storage gave to whoever asked for the job.
 */
static VALUE root_fiber_begin(VALUE self, VALUE storage)
{
    (void)self;
    VALUE fiber = rb_fiber_current();
    if (!NIL_P(storage)) {
        set_storage(fiber, storage);
    } else {
        clear_storage(fiber); // a thread inherits the storage of whoever starts it
    }
    return Qnil;
}

/*
 * call-seq: Heddle::Scheduler.root_fiber_end -> true or false
 *
 * @api private Removes the locals, the instance variables and the storage of the calling fiber. False where a library that
 * knows the fiber by its identity wants it dead ({FiberPool.retire_if}): the thread has to end.
 */
static VALUE root_fiber_end(VALUE self)
{
    (void)self;
    VALUE fiber = rb_fiber_current();
    if (wanted_dead(fiber)) return Qfalse;
    clear(fiber);
    return Qtrue;
}

void Init_heddle_carrier(void)
{
    id_new = rb_intern("new");
    id_keys = rb_intern("keys");
    id_storage = rb_intern("storage");
    id_set_storage = rb_intern("storage=");
    id_aref = rb_intern("[]");
    id_aset = rb_intern("[]=");
    id_call = rb_intern("call");
    sym_experimental = ID2SYM(rb_intern("experimental"));
    storage_supported = RTEST(rb_funcall(heddle_cFiber, rb_intern("method_defined?"), 1, ID2SYM(id_storage)));
    rb_gc_register_mark_object(mWarning = rb_path2class("Warning"));
    rb_gc_register_mark_object(eFiberError = rb_path2class("FiberError"));
    rb_gc_register_mark_object(retire_predicates = rb_ary_new());
    rb_gc_register_mark_object(one_proc = rb_proc_new(run_one, Qnil));
    rb_gc_register_mark_object(many_proc = rb_proc_new(run_many, Qnil));
    rb_gc_register_mark_object(carry_proc = rb_proc_new(carry, Qnil));
    VALUE scheduler = rb_const_get(heddle_module, rb_intern("Scheduler"));
    rb_define_singleton_method(scheduler, "retire_if", retire_if, 1);
    rb_define_singleton_method(scheduler, "root_fiber_begin", root_fiber_begin, 1);
    rb_define_singleton_method(scheduler, "end_child", end_child_of_thread, 1);
    rb_define_singleton_method(scheduler, "root_fiber_end", root_fiber_end, 0);
}
