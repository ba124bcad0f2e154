#include "loop/worker.h"

#include "loop/scheduler.h"
#include "loop/task_class.h"
#include "shims.h"

enum { IDLE_LIMIT = 4096 }; // more than that are let go after a burst

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
    rb_ary_push((VALUE)names, ID2SYM(name));
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
static VALUE wanted_dead(VALUE fiber)
{
    for (long i = 0; i < RARRAY_LEN(retire_predicates); i++) {
        if (RTEST(rb_funcall(RARRAY_AREF(retire_predicates, i), id_call, 1, fiber))) return Qtrue;
    }
    return Qfalse;
}

static bool reusable(struct loop *loop, VALUE fiber)
{
    if (loop->idle_count >= IDLE_LIMIT || loop->closed) return false;
    int state = 0;
    VALUE dead = rb_protect(wanted_dead, fiber, &state);
    if (state) {
        rb_warn("heddle: a Heddle::FiberPool.retire_if block raised %" PRIsVALUE "; the fiber is not used again",
                rb_errinfo());
        rb_set_errinfo(Qnil);
        return false;
    }
    if (RTEST(dead)) return false;
    clear_locals();
    clear_instance_variables(fiber);
    clear_storage(fiber);
    return true;
}

// ---- the two kinds of fiber

static void run(struct loop *loop, struct task *task)
{
    loop->task = task;
    if (storage_supported && !NIL_P(task->storage)) set_storage(rb_fiber_current(), task->storage);
    task_run(task);
    loop->task = &loop->attendant;
}

static VALUE run_one(RB_BLOCK_CALL_FUNC_ARGLIST(unused, task_object))
{
    (void)unused, (void)argc, (void)argv, (void)blockarg;
    struct task *task = task_of(task_object);
    struct loop *loop = task->loop;
    run(loop, task);
    return Qnil;
}

static VALUE run_many(RB_BLOCK_CALL_FUNC_ARGLIST(unused, task_object))
{
    (void)unused, (void)argc, (void)argv, (void)blockarg;
    struct task *task = task_of(task_object);
    struct loop *loop = task->loop;
    VALUE fiber = rb_fiber_current();
    for (;;) {
        run(loop, task);
        struct task *successor = task_successor(task);
        if (!reusable(loop, fiber)) {
            loop->statistics.retired++;
            if (successor) worker_start(loop, successor, false, Qnil);
            return Qnil;
        }
        if (successor) {
            task = successor;
        } else {
            loop_idle(loop);
            task = loop->task;
        }
    }
}

// ---- starting

struct start {
    struct loop *loop;
    struct task *task;
    VALUE fiber;
};

static VALUE start_fiber(VALUE argument)
{
    struct start *start = (struct start *)argument;
    loop_start(start->loop, start->fiber);
    return Qnil;
}

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
    task_forget(start->task);
    VALUE reason = rb_funcall(error, rb_intern("message"), 0);
    rb_raise(heddle_eLimitReached,
             "cannot start another fiber (%" PRIsVALUE
             "): %lu tasks have not ended, and each fiber takes two memory maps of the %lu that vm.max_map_count "
             "allows this process. Raise it (sysctl vm.max_map_count), or bound the tasks with a Heddle::FiberPool",
             reason, (unsigned long)start->loop->task_count, map_limit());
}

VALUE worker_start(struct loop *loop, struct task *task, bool fresh, VALUE options)
{
    loop->statistics.spawned++;
    if (!fresh && loop->idle) {
        loop->statistics.reused++;
        if (storage_supported) task->storage = rb_funcall(rb_fiber_current(), id_storage, 0);
        loop_continue_idle(loop, task);
        return task->fiber;
    }
    struct start start = {.loop = loop, .task = task};
    // Not rb_fiber_new: on 3.1 that makes blocking fibers, which never reach a scheduler.
    int argc = NIL_P(options) ? 0 : 1;
    start.fiber = rb_block_call_kw(heddle_cFiber, id_new, argc, &options, fresh ? run_one : run_many, task->self,
                                   argc ? RB_PASS_KEYWORDS : RB_NO_KEYWORDS);
    rb_rescue2(start_fiber, (VALUE)&start, rescue_fiber_error, (VALUE)&start, eFiberError, (VALUE)0);
    return start.fiber;
}

// ---- starting from other threads: a fiber belongs to the thread that makes it

static VALUE carry(RB_BLOCK_CALL_FUNC_ARGLIST(unused, scheduler))
{
    (void)unused, (void)argc, (void)argv, (void)blockarg;
    struct loop *loop = scheduler_loop(scheduler);
    loop->task = &loop->attendant;
    for (;;) {
        struct task *task = task_of(loop_next_posted(loop));
        if (task->status == TASK_QUEUED) worker_start(loop, task, false, Qnil);
    }
    return Qnil;
}

void worker_open_porter(struct loop *loop)
{
    if (loop->porter) return;
    loop->porter = rb_block_call(heddle_cFiber, id_new, 0, NULL, carry, loop->self);
    loop_start(loop, loop->porter);
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

void Init_heddle_worker(void)
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
    VALUE scheduler = rb_const_get(heddle_module, rb_intern("Scheduler"));
    rb_define_singleton_method(scheduler, "retire_if", retire_if, 1);
}
