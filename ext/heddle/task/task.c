#include "task/task.h"

#include "loop/records.h"
#include "os/main_ractor.h"

#include <string.h>

void task_mark(struct task *task)
{
    // Pins the task itself, too: a queue or a run that knows the record passes `self` on, and another object's
    // reference may let it move.
    if (task->owner.self) rb_gc_mark(task->owner.self);
    rb_gc_mark(task->owner.fiber);
    rb_gc_mark(task->block);
    rb_gc_mark(task->name);
    rb_gc_mark(task->result);
    rb_gc_mark(task->waiters);
    rb_gc_mark(task->scheduler);
    rb_gc_mark(task->storage);
    rb_gc_mark(task->run);
    rb_gc_mark(task->owner.external);
    rb_gc_mark(task->owner.interruption);
    rb_gc_mark(task->on_end);
    scope_chain_mark(&task->scopes);
}

static void task_mark_record(void *pointer)
{
    task_mark(pointer);
}

// Records of collected tasks, for reuse: programs start tasks all the time, and allocating and freeing these records
// was a twentieth of a task's cost. Records beyond SPARES are freed.
enum { SPARES = 1024 };

static struct task *spares; // linked by `in[0].next`
static uint32_t spare_count;

static bool keep_spare(struct task *task)
{
    if (!in_main_ractor() || spare_count == SPARES) return false;
    task->in[0].next = spares;
    spares = task;
    spare_count++;
    return true;
}

static struct task *take_spare(void)
{
    struct task *task = spares;
    if (!task) return NULL;
    spares = task->in[0].next;
    spare_count--;
    return task;
}

void task_record(struct task *task)
{
    bool named = RB_TYPE_P(task->name, T_STRING);
    record_open(&task->owner, named ? RSTRING_PTR(task->name) : NULL, named ? (size_t)RSTRING_LEN(task->name) : 0);
    RB_GC_GUARD(task->name);
}

static void task_release(void *pointer)
{
    record_abandon(&((struct task *)pointer)->owner);
    if (!keep_spare(pointer)) xfree(pointer);
}

// Returns a cleared record. Raises NoMemoryError.
static struct task *new_task(void)
{
    struct task *task = take_spare();
    return task ? memset(task, 0, sizeof(*task)) : ZALLOC(struct task);
}

static size_t task_memsize(const void *pointer)
{
    (void)pointer;
    return sizeof(struct task);
}

// Not WB_PROTECTED: scopes come and go in a running task, and marking the task again at each minor GC is cheaper than a
// write barrier for each scope. References are pinned because the loop goes by the addresses of fibers.
static const rb_data_type_t task_type = {
    .wrap_struct_name = "Heddle::Task",
    .function = {.dmark = task_mark_record, .dfree = task_release, .dsize = task_memsize},
    .flags = RUBY_TYPED_FREE_IMMEDIATELY,
};

void task_become(struct task *task, enum task_status status)
{
#ifdef HEDDLE_DEBUG
    enum { ENDS = 1 << TASK_COMPLETED | 1 << TASK_FAILED | 1 << TASK_CANCELLED };
    static const unsigned followed_by[] = {
        [TASK_QUEUED] = 1 << TASK_RUNNING | 1 << TASK_WITHDRAWN,
        [TASK_RUNNING] = 1 << TASK_CANCELLING | ENDS,
        [TASK_CANCELLING] = 1 << TASK_CANCELLING | ENDS,
        [TASK_WITHDRAWN] = 0,
    };
    HEDDLE_ASSERT(followed_by[task->status] & 1U << status);
#endif
    task->status = status;
}

struct task *task_of(VALUE object)
{
    return rb_check_typeddata(object, &task_type);
}

void task_init(struct task *task, struct loop *loop, VALUE scheduler)
{
    static uint64_t numbers; // under the GVL
    task->owner.number = ++numbers;
    task->owner.loop = loop;
    task->owner.fiber = task->owner.external = task->owner.interruption = Qnil;
    task->block = task->name = task->result = task->waiters = Qnil;
    task->storage = task->run = task->on_end = Qnil;
    task->scheduler = scheduler;
    task->scopes.owner = loop ? &task->owner : NULL;
    task->owner.chain = &task->scopes;
}

struct task *task_new(struct loop *loop, VALUE scheduler)
{
    VALUE self = TypedData_Wrap_Struct(heddle_cTask, &task_type, NULL);
    struct task *task = RTYPEDDATA_DATA(self) = new_task();
    task->owner.self = self;
    task_init(task, loop, scheduler);
    task->storage = Qundef;
    return task;
}

// ---- lists

void task_list_add(struct task_list *list, struct task *task)
{
    task->in[list->kind].prev = list->tail;
    *(list->tail ? &list->tail->in[list->kind].next : &list->head) = task;
    list->tail = task;
    list->count++;
}

void task_list_remove(struct task_list *list, struct task *task)
{
    struct task *prev = task->in[list->kind].prev, *next = task->in[list->kind].next;
    *(prev ? &prev->in[list->kind].next : &list->head) = next;
    *(next ? &next->in[list->kind].prev : &list->tail) = prev;
    task->in[list->kind].prev = task->in[list->kind].next = NULL;
    list->count--;
}

void task_list_mark(const struct task_list *list)
{
    for (const struct task *task = list->head; task; task = task->in[list->kind].next)
        rb_gc_mark(task->owner.self);
}

VALUE task_list_objects(const struct task_list *list)
{
    VALUE all = rb_ary_new();
    for (const struct task *task = list->head; task; task = task->in[list->kind].next)
        rb_ary_push(all, task->owner.self);
    return all;
}
