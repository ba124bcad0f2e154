#include "task/task_loop.h"

#include "loop/park.h"
#include "loop/wake.h"
#include "os/main_ractor.h"
#include "scope/thread_scope.h"
#include "task/current.h"
#include "task/task_end.h"

// ---- the functions that the loop calls for the owners of its waits

static void fiber_ended(struct wait_owner *owner)
{
    task_fiber_ended(task_of_owner(owner));
}

// Code outside of any task is bound by its thread's deadlines.
static void adopt(struct loop *loop)
{
    loop->root->chain = thread_scope_chain(rb_thread_current());
}

// In a child of fork the task's timers are in the parent's heap, and its place is in the parent's list.
static void orphan(struct task *task)
{
    task->owner.listed = false;
    for (struct scope *scope = task->scopes.innermost; scope; scope = scope->outer)
        scope->timer.index = 0;
}

static void task_loop_discard(struct loop *loop)
{
    struct task_loop *tasks = task_loop_of(loop);
    for (struct task *task = tasks->tasks.head; task; task = task->in[LIST_OF_LOOP].next)
        orphan(task);
    tasks->tasks = (struct task_list){.kind = LIST_OF_LOOP};
    tasks->drain_fiber = tasks->inbox = 0;
    tasks->posted = tasks->fatal = tasks->run = Qnil;
}

static const struct owner_functions owners = {
    .fiber_ended = fiber_ended,
    .adopt = adopt,
    .discard = task_loop_discard,
};

// ---- the object

static void task_loop_mark(void *pointer)
{
    struct task_loop *tasks = pointer;
    loop_mark(&tasks->loop);
    if (tasks->drain_fiber) rb_gc_mark(tasks->drain_fiber);
    if (tasks->inbox) rb_gc_mark(tasks->inbox);
    rb_gc_mark(tasks->run);
    rb_gc_mark(tasks->posted);
    rb_gc_mark(tasks->fatal);
    task_mark(&tasks->root);
    task_mark(&tasks->system);
    task_list_mark(&tasks->tasks);
}

static void task_loop_release(void *pointer)
{
    if (main_ractor_releases(pointer, task_loop_release)) return;
    loop_free(&((struct task_loop *)pointer)->loop);
    xfree(pointer);
}

static size_t task_loop_memsize(const void *pointer)
{
    return sizeof(struct task_loop) + loop_memsize(&((const struct task_loop *)pointer)->loop);
}

// Not WB_PROTECTED: its references change with every switch, and marking it again at each minor GC is cheaper. They are
// pinned, because the loop goes by the addresses of fibers.
static const rb_data_type_t task_loop_type = {
    .wrap_struct_name = "Heddle::Scheduler",
    .function = {.dmark = task_loop_mark, .dfree = task_loop_release, .dsize = task_loop_memsize},
    .parent = &loop_type,
    .flags = RUBY_TYPED_FREE_IMMEDIATELY,
};

VALUE task_loop_allocate(VALUE klass)
{
    struct task_loop *tasks;
    VALUE self = TypedData_Make_Struct(klass, struct task_loop, &task_loop_type, tasks);
    struct task *stand_ins[] = {&tasks->root, &tasks->system};
    loop_init(&tasks->loop, self, &owners, &tasks->root.owner, &tasks->system.owner);
    for (int i = 0; i < 2; i++) {
        task_init(stand_ins[i], &tasks->loop, self);
        task_become(stand_ins[i], TASK_RUNNING);
    }
    tasks->posted = tasks->fatal = tasks->run = Qnil;
    return self;
}

// ---- the tasks that have not ended

static void inherit(struct task *task, struct scope *from)
{
    struct scope *scope = scope_new(SCOPE_DEADLINE, from->span);
    VALUE self = scope->self;
    scope->inherited = true;
    scope->call = from->call;
    from->bequeathed = true;
    scope_open(scope, &task->scopes, from->at);
    RB_GC_GUARD(self);
}

// The earliest deadline that binds besides those of that call; or NULL.
static struct scope *binding_besides(const struct scope_chain *chain, uint64_t call)
{
    struct scope *earliest = NULL;
    for (struct scope *scope = chain->innermost; scope; scope = scope->outer) {
        bool binds = scope->kind != SCOPE_TIMEOUT && scope->at != DEADLINE_NEVER && scope->call != call;
        if (binds && (!earliest || scope->at < earliest->at)) earliest = scope;
        if (scope_hides_outer(scope)) break;
    }
    return earliest;
}

// The deadline in force at its creation binds a task to its end; that of a call until the call has returned, and then
// the earliest of the others.
static void inherit_deadline(struct task *task)
{
    struct scope_chain *chain = scope_chain_current();
    deadline_t at = scope_in_force(chain);
    if (at == DEADLINE_NEVER) return;
    struct scope *binding = chain->innermost;
    while (binding->at != at || binding->kind == SCOPE_TIMEOUT)
        binding = binding->outer;
    struct scope *later = binding->call && task->owner.loop ? binding_besides(chain, binding->call) : NULL;
    if (later) inherit(task, later);
    inherit(task, binding);
}

void task_loop_call_returned(struct loop *loop, uint64_t call)
{
    for (struct task *task = task_loop_of(loop)->tasks.head; task; task = task->in[LIST_OF_LOOP].next) {
        struct scope *scope = task->scopes.innermost;
        while (scope && !(scope->inherited && scope->call == call))
            scope = scope->outer;
        if (!scope || scope->expired) continue;
        scope_close(scope);
        scope->at = DEADLINE_NEVER; // its block goes on: an error that leaves the block later is none of the deadline's
    }
}

void task_settle(struct task *task, VALUE scheduler)
{
    struct loop *loop = loop_of(scheduler);
    task->scheduler = scheduler;
    task->owner.loop = loop;
    task->scopes.owner = loop ? &task->owner : NULL;
}

// The code that makes the task, if a task runs it; otherwise 0.
static uint64_t number_of_parent(const struct loop *loop)
{
    if (loop && loop->thread == rb_thread_current()) return loop->owner->self ? loop->owner->number : 0;
    const struct task *task = task_current();
    return task ? task->owner.number : 0;
}

VALUE task_create(VALUE block, VALUE name, VALUE scheduler, struct loop *loop, bool inherits)
{
    struct task *task = task_new(loop, scheduler);
    VALUE self = task->owner.self;
    task->owner.parent = number_of_parent(loop);
    task->block = block;
    task->name = name;
    if (inherits) {
        inherit_deadline(task);
        task->scopes.filters = scope_filters(scope_chain_current());
    }
    RB_GC_GUARD(self);
    return self;
}

// ---- work from other threads

void task_loop_post(struct loop *loop, VALUE task)
{
    struct task_loop *tasks = task_loop_of(loop);
    if (NIL_P(tasks->posted)) tasks->posted = rb_ary_new();
    rb_ary_push(tasks->posted, task);
    loop_unblock_parked(loop, tasks->inbox);
}

VALUE task_loop_first_posted(struct loop *loop)
{
    struct task_loop *tasks = task_loop_of(loop);
    while (NIL_P(tasks->posted) || RARRAY_LEN(tasks->posted) == 0)
        loop_block(loop, loop->self, DEADLINE_NEVER);
    return RARRAY_AREF(tasks->posted, 0);
}

void task_loop_take_posted(struct loop *loop, VALUE successor)
{
    VALUE posted = task_loop_of(loop)->posted;
    if (NIL_P(posted)) return; // in a child of fork
    if (NIL_P(successor)) {
        rb_ary_shift(posted);
    } else {
        RARRAY_ASET(posted, 0, successor);
    }
}
