#include "sync/resource_pool.h"

#include "cancel/scope_fiber.h"
#include "os/main_ractor.h"
#include "protect.h"
#include "sync/pools.h"
#include "scope/deadline_scope.h"
#include "scope/scope.h"

static VALUE cDroppedFiber;
static ID id_make, id_check, id_reset, id_dispose, id_detach, id_exhausted, id_hold;

void resource_pool_init(struct resource_pool *pool, VALUE self, const struct resource_kind *kind)
{
    *pool = (struct resource_pool){.kind = kind,
                                   .discarded = Qnil,
                                   .forks = fork_count(),
                                   .wait_span = DEADLINE_NEVER,
                                   .idle_span = DEADLINE_NEVER,
                                   .lifetime = DEADLINE_NEVER};
    semaphore_init(&pool->semaphore, self);
}

void resource_pool_references(void *pointer, reference_function *each)
{
    struct resource_pool *pool = pointer;
    semaphore_references(&pool->semaphore, each);
    each(&pool->discarded);
    for (long i = 0; i < pool->idle_count; i++)
        each(&pool->idle[i].object);
}

REFERENCES(resource_pool)

void resource_pool_free(struct resource_pool *pool)
{
    semaphore_free(&pool->semaphore);
    xfree(pool->idle);
}

size_t resource_pool_memsize(const struct resource_pool *pool)
{
    return (size_t)pool->idle_room * sizeof *pool->idle;
}

VALUE resource_pool_take_all(struct resource_pool *pool)
{
    VALUE all = rb_ary_new_capa(pool->idle_count);
    for (long i = 0; i < pool->idle_count; i++)
        rb_ary_push(all, pool->idle[i].object);
    pool->open -= pool->idle_count;
    pool->idle_count = 0;
    pool->generation++;
    return all;
}

struct resource_disposal {
    const struct resource_pool *pool;
    VALUE object;
    unsigned forks; // of the process that has made it
};

static VALUE resource_dispose_body(VALUE argument)
{
    const struct resource_disposal *disposal = (const struct resource_disposal *)argument;
    const struct resource_kind *kind = disposal->pool->kind;
    void (*dispose)(VALUE, VALUE) = disposal->forks == fork_count() ? kind->dispose : kind->detach;
    if (dispose && !NIL_P(disposal->object)) dispose(disposal->pool->semaphore.self, disposal->object);
    return Qnil;
}

static void resource_dispose(const struct resource_pool *pool, VALUE object, unsigned forks)
{
    struct resource_disposal disposal = {pool, object, forks};
    resource_dispose_body((VALUE)&disposal);
}

// `state` as for protect_next.
static void resource_dispose_next(const struct resource_pool *pool, VALUE object, unsigned forks, int *state)
{
    struct resource_disposal disposal = {pool, object, forks};
    protect_next(resource_dispose_body, (VALUE)&disposal, state);
}

// All of them, whatever one raises. One may fork: in the child the others are the parent's.
static void resource_dispose_all(const struct resource_pool *pool, VALUE all, unsigned forks)
{
    int state = 0;
    for (long i = 0; i < RARRAY_LEN(all); i++)
        resource_dispose_next(pool, rb_ary_entry(all, i), forks, &state);
    if (state) rb_jump_tag(state);
}

// A child of fork must not use its parent's resources.
void resource_pool_enter(struct resource_pool *pool)
{
    if (pool->forks == fork_count()) return;
    unsigned parent = pool->forks;
    pool->forks = fork_count();
    VALUE all = resource_pool_take_all(pool);
    pool->open = 0;
    pool->discarded = Qnil;
    resource_dispose_all(pool, all, parent);
}

static bool resource_lives(const struct resource *resource)
{
    return resource->expires == DEADLINE_NEVER || deadline_now() < resource->expires;
}

// Of the one that nobody has used for the longest time. Those above it may have outlived their time as well, but are
// used, or come to lie there.
static bool resource_expired(const struct resource_pool *pool)
{
    if (!resource_lives(pool->idle)) return true;
    return pool->idle_span != DEADLINE_NEVER && pool->open > pool->least &&
           pool->idle->since < deadline_now() - pool->idle_span;
}

// Disposes of those that were idle or lived for too long. Others may use the pool meanwhile, and a disposal may fork.
static void resource_pool_expire(struct resource_pool *pool)
{
    while (pool->forks == fork_count() && pool->idle_count && resource_expired(pool)) {
        VALUE object = pool->idle[0].object;
        MEMMOVE(pool->idle, pool->idle + 1, struct resource, --pool->idle_count);
        pool->open--;
        pool->kind->dispose(pool->semaphore.self, object);
    }
}

enum semaphore_answer resource_lease_permit(struct resource_lease *lease, deadline_t until)
{
    struct resource_pool *pool = lease->pool;
    enum semaphore_answer answer = SEMAPHORE_TAKEN;
    if (semaphore_try(&pool->semaphore)) {
        semaphore_note_holder(&pool->semaphore);
    } else {
        deadline_t limit = deadline_in(pool->wait_span);
        answer = semaphore_acquire(&pool->semaphore, limit < until ? limit : until);
    }
    lease->permit = answer <= SEMAPHORE_HANDED; // first, because after_fork: may raise
    lease->forks = fork_count();
    resource_pool_enter(pool); // a trap handler may fork during the wait
    return answer;
}

// Resources that were made together do not end together: a lifetime ends up to a tenth earlier.
static deadline_t resource_expiry(struct resource_pool *pool)
{
    if (pool->lifetime == DEADLINE_NEVER) return DEADLINE_NEVER;
    return deadline_in(pool->lifetime - pool->lifetime / 80 * (pool->made++ % 8));
}

// False in a child of a fork that came during the lease, by a hook or a trap handler: permit and resource are the
// parent's.
static bool resource_lease_current(const struct resource_lease *lease)
{
    return lease->forks == fork_count();
}

static bool resource_usable(const struct resource_lease *lease)
{
    const struct resource_pool *pool = lease->pool;
    return lease->resource.generation == pool->generation && !pool->semaphore.closed &&
           resource_lives(&lease->resource);
}

// Whether the lease has an idle resource now.
static bool resource_lease_reuse(struct resource_lease *lease, bool handed_over)
{
    struct resource_pool *pool = lease->pool;
    if (!pool->idle_count) return false;
    lease->resource = pool->idle[--pool->idle_count];
    lease->counted = true;
    VALUE object = lease->resource.object;
    if (resource_usable(lease) && pool->kind->check(pool->semaphore.self, object, handed_over)) return true;
    lease->resource.object = Qnil; // the lease keeps the permit
    resource_dispose(pool, object, lease->forks);
    return false;
}

bool resource_lease_lasts(const struct resource_lease *lease)
{
    return resource_lease_current(lease) && resource_usable(lease);
}

long resource_pool_room(struct resource_pool *pool)
{
    struct semaphore *semaphore = &pool->semaphore;
    if (semaphore->forks != fork_count()) semaphore_discard_parents(semaphore);
    return semaphore->closed || semaphore->taken > semaphore->permits ? 0 : semaphore->permits - semaphore->taken;
}

static void resource_lease_make(struct resource_lease *lease)
{
    struct resource_pool *pool = lease->pool;
    if (!lease->counted) {
        if (pool->open >= pool->idle_room) { // for its return, which must not raise
            RB_REALLOC_N(pool->idle, struct resource, pool->open + 1);
            pool->idle_room = pool->open + 1;
        }
        pool->open++;
        lease->counted = true;
    }
    lease->resource.generation = pool->generation;
    pool->kind->make(lease);
    lease->resource.expires = resource_expiry(pool);
    lease->made = true;
}

bool resource_lease_fill(struct resource_lease *lease, bool handed_over)
{
    resource_pool_expire(lease->pool);
    if (resource_lease_current(lease) && !resource_lease_reuse(lease, handed_over) && resource_lease_current(lease))
        resource_lease_make(lease);
    lease->ready = resource_lease_current(lease);
    if (lease->ready) return true;
    struct resource_lease parents = *lease;
    *lease = (struct resource_lease){.pool = parents.pool, .resource.object = Qnil};
    resource_dispose(parents.pool, parents.resource.object, parents.forks);
    return false;
}

static bool resource_discarded(const struct resource_pool *pool, VALUE object)
{
    bool discarded = false;
    if (NIL_P(pool->discarded)) return false;
    for (long i = RARRAY_LEN(pool->discarded) - 1; i >= 0; i--) {
        if (rb_ary_entry(pool->discarded, i) != object) continue;
        rb_ary_delete_at(pool->discarded, i);
        discarded = true;
    }
    return discarded;
}

static VALUE resource_reset(VALUE argument)
{
    const struct resource_lease *lease = (const struct resource_lease *)argument;
    const struct resource_pool *pool = lease->pool;
    return pool->kind->reset(pool->semaphore.self, lease->resource.object) ? Qtrue : Qfalse;
}

static VALUE resource_release(VALUE pool)
{
    semaphore_release(&((struct resource_pool *)pool)->semaphore);
    return Qnil;
}

void resource_lease_end(struct resource_lease *lease, bool keep)
{
    struct resource_pool *pool = lease->pool;
    VALUE object = lease->resource.object;
    int state = 0;
    if (!lease->permit) return;
    lease->permit = false;
    if (resource_discarded(pool, object) || NIL_P(object) || !lease->ready || !resource_usable(lease)) keep = false;
    if (keep && pool->kind->reset && resource_lease_current(lease))
        keep = RTEST(rb_protect(resource_reset, (VALUE)lease, &state)) && !state;
    if (keep && resource_lease_current(lease) && resource_usable(lease)) { // others have run meanwhile, perhaps
        if (pool->idle_span != DEADLINE_NEVER) lease->resource.since = deadline_now();
        HEDDLE_ASSERT(pool->idle_count < pool->idle_room);
        pool->idle[pool->idle_count++] = lease->resource;
        RB_OBJ_WRITTEN(pool->semaphore.self, Qundef, object);
    } else {
        if (lease->counted && resource_lease_current(lease)) pool->open--; // before the disposal, which may wait
        resource_dispose_next(pool, object, lease->forks, &state);
    }
    if (resource_lease_current(lease)) protect_next(resource_release, (VALUE)pool, &state);
    if (state) rb_jump_tag(state);
}

// ---- Heddle::ResourcePool: its kind calls its methods, which are Ruby's

static void resource_call_make(struct resource_lease *lease)
{
    lease->resource.object = rb_funcall(lease->pool->semaphore.self, id_make, 0);
}

static bool resource_call_check(VALUE pool, VALUE object, bool handed_over)
{
    return RTEST(rb_funcall(pool, id_check, 2, object, handed_over ? Qtrue : Qfalse));
}

static bool resource_call_reset(VALUE pool, VALUE object)
{
    return RTEST(rb_funcall(pool, id_reset, 1, object));
}

static void resource_call_dispose(VALUE pool, VALUE object)
{
    rb_funcall(pool, id_dispose, 1, object);
}

static void resource_call_detach(VALUE pool, VALUE object)
{
    rb_funcall(pool, id_detach, 1, object);
}

static const struct resource_kind resource_of_ruby = {
    .make = resource_call_make,
    .check = resource_call_check,
    .reset = resource_call_reset,
    .dispose = resource_call_dispose,
    .detach = resource_call_detach,
};

static void resource_pool_release(void *pointer)
{
    if (main_ractor_releases(pointer, resource_pool_release)) return;
    resource_pool_free(pointer);
    xfree(pointer);
}

static size_t resource_pool_memsize_object(const void *pointer)
{
    return sizeof(struct resource_pool) + resource_pool_memsize(pointer);
}

static const rb_data_type_t resource_pool_type = {
    .wrap_struct_name = "Heddle::ResourcePool",
    .function = {.dmark = resource_pool_mark,
                 .dfree = resource_pool_release,
                 .dsize = resource_pool_memsize_object,
                 .dcompact = resource_pool_compact},
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

static VALUE resource_pool_allocate(VALUE klass)
{
    struct resource_pool *pool;
    VALUE self = TypedData_Make_Struct(klass, struct resource_pool, &resource_pool_type, pool);
    resource_pool_init(pool, self, &resource_of_ruby);
    pools_add(self);
    return self;
}

struct resource_pool *resource_pool_of(VALUE self)
{
    struct resource_pool *pool = rb_check_typeddata(self, &resource_pool_type);
    resource_pool_enter(pool);
    return pool;
}

/* @api private pool.holders -> [Integer, ...]: numbers of tasks that have a resource, see semaphore.h */
static VALUE pool_holders(VALUE self)
{
    return semaphore_holders(&resource_pool_of(self)->semaphore);
}

/* @api private pool.set_up(size, timeout, idle, min, max_lifetime), all but size and min in seconds, or nil */
static VALUE resource_pool_set_up(VALUE self, VALUE size, VALUE timeout, VALUE idle, VALUE least, VALUE lifetime)
{
    struct resource_pool *pool = resource_pool_of(self);
    pool->semaphore.permits = NUM2LONG(size);
    pool->wait_span = deadline_span(timeout);
    pool->idle_span = deadline_span(idle);
    pool->least = NUM2LONG(least);
    pool->lifetime = deadline_span(lifetime);
    return self;
}

static VALUE resource_lease_close(VALUE lease)
{
    resource_lease_end((struct resource_lease *)lease, true);
    return Qnil;
}

static void resource_lease_mark(void *pointer)
{
    rb_gc_mark(((struct resource_lease *)pointer)->resource.object);
}

// A lease of a fiber that may be dropped in the middle of its block, such as an Enumerator's, which runs no `ensure`
// then: see lib/heddle/core/dropped_fiber.rb. Not WB_PROTECTED, and pinned: it refers to what was on a stack.
static const rb_data_type_t resource_lease_type = {
    .wrap_struct_name = "Heddle::ResourcePool lease",
    .function = {.dmark = resource_lease_mark, .dfree = RUBY_TYPED_DEFAULT_FREE},
    .flags = RUBY_TYPED_FREE_IMMEDIATELY,
};

static VALUE resource_pool_yield(RB_BLOCK_CALL_FUNC_ARGLIST(unused, object))
{
    (void)unused, (void)argc, (void)argv, (void)blockarg;
    return rb_yield(object);
}

static VALUE resource_lease_hold(VALUE kept)
{
    const struct resource_lease *lease = RTYPEDDATA_DATA(kept);
    VALUE arguments[] = {lease->pool->semaphore.self, kept};
    return rb_block_call(cDroppedFiber, id_hold, 2, arguments, resource_pool_yield, lease->resource.object);
}

static VALUE resource_lease_use(struct resource_lease *lease)
{
    struct scope_chain *chain = scope_chain_current();
    if (scope_chain_at_home(chain, rb_fiber_current())) return rb_yield(lease->resource.object);
    struct resource_lease *moved;
    VALUE kept = TypedData_Make_Struct(rb_cObject, struct resource_lease, &resource_lease_type, moved);
    *moved = *lease;
    lease->permit = false;
    VALUE value = rb_ensure(resource_lease_hold, kept, resource_lease_close, (VALUE)moved);
    RB_GC_GUARD(kept);
    return value;
}

// Returns whether the lease has a resource. #exhausted raises, but a program's own may not.
static bool resource_lease_obtain(struct resource_lease *lease, deadline_t until, VALUE *otherwise)
{
    enum semaphore_answer answer;
    do {
        answer = resource_lease_permit(lease, until);
        if (answer == SEMAPHORE_LATE) deadline_check(); // a deadline around the call has passed, too
        if (lease->permit) continue;
        VALUE closed = answer == SEMAPHORE_CLOSED ? Qtrue : Qfalse;
        *otherwise = rb_funcall(lease->pool->semaphore.self, id_exhausted, 1, closed);
        return false;
    } while (!resource_lease_fill(lease, answer == SEMAPHORE_HANDED));
    return true;
}

static VALUE resource_pool_lend(VALUE argument)
{
    struct resource_lease *lease = (struct resource_lease *)argument;
    VALUE otherwise;
    return resource_lease_obtain(lease, DEADLINE_NEVER, &otherwise) ? resource_lease_use(lease) : otherwise;
}

struct resource_borrowing {
    struct resource_lease *lease;
    deadline_t until;
};

static VALUE resource_borrow_body(VALUE argument)
{
    const struct resource_borrowing *borrowing = (const struct resource_borrowing *)argument;
    VALUE otherwise;
    resource_lease_obtain(borrowing->lease, borrowing->until, &otherwise);
    return Qnil;
}

static VALUE resource_borrow_end(VALUE argument)
{
    struct resource_lease *lease = ((const struct resource_borrowing *)argument)->lease;
    if (!lease->ready) resource_lease_end(lease, false);
    return Qnil;
}

VALUE resource_pool_borrow(VALUE pool, deadline_t until)
{
    struct resource_lease *lease;
    VALUE kept = TypedData_Make_Struct(rb_cObject, struct resource_lease, &resource_lease_type, lease);
    *lease = (struct resource_lease){.pool = resource_pool_of(pool), .resource.object = Qnil};
    struct resource_borrowing borrowing = {lease, until};
    rb_ensure(resource_borrow_body, (VALUE)&borrowing, resource_borrow_end, (VALUE)&borrowing);
    RB_GC_GUARD(pool);
    RB_GC_GUARD(kept);
    return kept;
}

struct resource_lease *resource_lease_of(VALUE lease)
{
    return rb_check_typeddata(lease, &resource_lease_type);
}

void resource_lease_give_back(VALUE lease)
{
    resource_lease_end(resource_lease_of(lease), true);
    RB_GC_GUARD(lease);
}

/*
 * call-seq: pool.with { |resource| … } -> the block's value
 *
 * Lends the block a resource that nobody else uses meanwhile. Those who wait get one in the order of their calls.
 * However the block ends (an exception, Thread#kill, a cancel; also where the GC collects the Enumerator in whose fiber
 * it runs), its resource returns to the pool.
 *
 * @yieldparam resource [Object]
 * @raise [PoolTimeout] when none becomes free in time; [PoolClosed]; what making a resource raises
 */
static VALUE resource_pool_with(VALUE self)
{
    if (!rb_block_given_p())
        rb_raise(rb_eArgError, "%" PRIsVALUE "#with needs a block: pool.with { |resource| … }", rb_obj_class(self));
    struct resource_lease lease = {.pool = resource_pool_of(self), .resource.object = Qnil};
    return rb_ensure(resource_pool_lend, (VALUE)&lease, resource_lease_close, (VALUE)&lease);
}

/* @api private for DroppedFiber */
static VALUE resource_pool_take_back(VALUE self, VALUE lease)
{
    resource_lease_give_back(lease);
    return self;
}

/*
 * call-seq: pool.clear -> nil
 *
 * Disposes of the idle resources now, and of each other one when it is returned: a server has moved, say.
 */
static VALUE resource_pool_clear(VALUE self)
{
    struct resource_pool *pool = resource_pool_of(self);
    resource_dispose_all(pool, resource_pool_take_all(pool), fork_count());
    return Qnil;
}

static VALUE resource_pool_refuse(VALUE self)
{
    semaphore_close(&resource_pool_of(self)->semaphore);
    return Qnil;
}

/*
 * call-seq: pool.close -> nil
 *
 * Disposes of the idle resources now, and of each other one when it is returned. Waiting callers get PoolClosed.
 */
static VALUE resource_pool_close(VALUE self)
{
    return rb_ensure(resource_pool_refuse, self, resource_pool_clear, self);
}

/* call-seq: pool.closed? -> true or false */
static VALUE resource_pool_closed_p(VALUE self)
{
    return resource_pool_of(self)->semaphore.closed ? Qtrue : Qfalse;
}

/* call-seq: pool.size -> Integer, the most resources */
static VALUE resource_pool_size(VALUE self)
{
    return LONG2NUM(resource_pool_of(self)->semaphore.permits);
}

/*
 * call-seq: pool.discard(resource) -> nil
 *
 * Called in the block that has the resource: the pool disposes of it at its return, instead of lending it again.
 */
static VALUE resource_pool_discard(VALUE self, VALUE object)
{
    struct resource_pool *pool = resource_pool_of(self);
    if (NIL_P(pool->discarded)) RB_OBJ_WRITE(self, &pool->discarded, rb_ary_new());
    rb_ary_push(pool->discarded, object);
    return Qnil;
}

/* call-seq: pool.waiting -> Integer, how many callers wait */
static VALUE resource_pool_waiting(VALUE self)
{
    return SIZET2NUM(semaphore_waiting(&resource_pool_of(self)->semaphore));
}

/* @api private pool.counts -> [resources, idle ones, callers that wait] */
static VALUE resource_pool_counts(VALUE self)
{
    const struct resource_pool *pool = resource_pool_of(self);
    return rb_ary_new_from_args(3, LONG2NUM(pool->open), LONG2NUM(pool->idle_count), resource_pool_waiting(self));
}

void Init_heddle_resource_pool(void)
{
    id_make = rb_intern("make");
    id_check = rb_intern("check");
    id_reset = rb_intern("reset");
    id_dispose = rb_intern("dispose");
    id_detach = rb_intern("detach");
    id_exhausted = rb_intern("exhausted");
    id_hold = rb_intern("hold");
    // lib/heddle/core/dropped_fiber.rb
    cDroppedFiber = rb_define_class_under(heddle_module, "DroppedFiber", rb_cObject);
    rb_gc_register_mark_object(cDroppedFiber);
    VALUE cResourcePool = rb_define_class_under(heddle_module, "ResourcePool", rb_cObject);
    rb_define_alloc_func(cResourcePool, resource_pool_allocate);
    rb_undef_method(cResourcePool, "initialize_copy");
    rb_define_method(cResourcePool, "holders", pool_holders, 0);
    rb_define_private_method(cResourcePool, "set_up", resource_pool_set_up, 5);
    rb_define_private_method(cResourcePool, "counts", resource_pool_counts, 0);
    rb_define_method(cResourcePool, "with", resource_pool_with, 0);
    rb_define_method(cResourcePool, "take_back", resource_pool_take_back, 1);
    rb_define_method(cResourcePool, "clear", resource_pool_clear, 0);
    rb_define_method(cResourcePool, "close", resource_pool_close, 0);
    rb_define_method(cResourcePool, "closed?", resource_pool_closed_p, 0);
    rb_define_method(cResourcePool, "discard", resource_pool_discard, 1);
    rb_define_method(cResourcePool, "waiting", resource_pool_waiting, 0);
    rb_define_method(cResourcePool, "size", resource_pool_size, 0);
}
