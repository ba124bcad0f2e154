// A scope, and the chain of those that are open: which deadlines, shields and filters bind.
#include "cancel/chain.h"

#include "cancel/scope_fiber.h"

static VALUE cScope;

// ---- the object

static void scope_mark(void *pointer)
{
    struct scope *scope = pointer;
    rb_gc_mark(scope->self); // pins the scope: an exception's reference alone would let it move
    rb_gc_mark(scope->exception);
    rb_gc_mark(scope->message);
    rb_gc_mark(scope->filter);
    rb_gc_mark(scope->first);
    rb_gc_mark(scope->sent);
    rb_gc_mark(scope->fiber);
    rb_gc_mark(scope->watcher);
}

static void scope_release(void *pointer)
{
    xfree(pointer); // open scopes are marked by their chain
}

static size_t scope_memsize(const void *pointer)
{
    (void)pointer;
    return sizeof(struct scope);
}

// None of these three types is WB_PROTECTED: scopes come and go all the time, and a write barrier for each would cost
// more than marking them again. What they refer to is pinned: addresses of fibers and threads are compared.
static const rb_data_type_t scope_type = {
    .wrap_struct_name = "Heddle::Scope",
    .function = {.dmark = scope_mark, .dfree = scope_release, .dsize = scope_memsize},
    .flags = RUBY_TYPED_FREE_IMMEDIATELY,
};

struct scope *scope_of(VALUE object)
{
    return rb_check_typeddata(object, &scope_type);
}

// ---- spare scopes, for reuse

enum { SPARES = 256 };

static struct scope *spares; // linked by `outer`
static uint32_t spare_count;

static void mark_spares(void *unused)
{
    (void)unused;
    for (const struct scope *scope = spares; scope; scope = scope->outer)
        rb_gc_mark(scope->self);
}

// Not WB_PROTECTED, and pinned, as scope_type.
static const rb_data_type_t spares_type = {
    .wrap_struct_name = "Heddle::SpareScopes",
    .function = {.dmark = mark_spares},
    .flags = RUBY_TYPED_FREE_IMMEDIATELY,
};

static struct scope *take_spare(void)
{
    struct scope *scope = spares;
    spares = scope->outer;
    spare_count--;
    scope->outer = NULL;
    return scope;
}

// Making the object is most of a scope's cost. Kept only if no other code can refer to the scope: an exception or the
// helper refers only to scopes that have expired, and a fiber only to scopes with other_fiber. Nor if `uses` has
// changed: a continuation may leave a block a second time, when the scope serves another block.
void scope_hand_back(struct scope *scope, uint32_t uses)
{
    if (scope->uses != uses || scope->chain || scope->expired || scope->failures || scope->other_fiber) return;
    if (!NIL_P(scope->sent) || !NIL_P(scope->fiber) || !NIL_P(scope->watcher) || spare_count == SPARES) return;
    *scope = (struct scope){.self = scope->self, .outer = spares, .uses = uses + 1};
    spares = scope;
    spare_count++;
}

struct scope *scope_new(enum scope_kind kind, int64_t span)
{
    struct scope *scope;
    if (spares) {
        scope = take_spare();
    } else {
        VALUE self = TypedData_Make_Struct(cScope, struct scope, &scope_type, scope);
        scope->self = self;
    }
    scope->exception = scope->message = scope->filter = scope->first = Qnil;
    scope->sent = scope->fiber = scope->watcher = Qnil;
    scope->descriptor = -1;
    scope->kind = (uint8_t)kind;
    scope->span = span;
    scope->at = DEADLINE_NEVER;
    return scope;
}

// ---- the chain

void scope_chain_mark(const struct scope_chain *chain)
{
    if (chain->thread) rb_gc_mark(chain->thread); // pins the thread that has the chain: its address is compared
    rb_gc_mark(chain->root);
    rb_gc_mark(chain->sent);
    rb_gc_mark(chain->filters);
    for (const struct scope *scope = chain->innermost; scope; scope = scope->outer)
        rb_gc_mark(scope->self);
}

static void mark_chain(void *pointer)
{
    scope_chain_mark(pointer);
}

// Not WB_PROTECTED, and pinned, as scope_type.
static const rb_data_type_t chain_type = {
    .wrap_struct_name = "Heddle::Scopes",
    .function = {.dmark = mark_chain, .dfree = scope_release},
    .flags = RUBY_TYPED_FREE_IMMEDIATELY,
};

struct scope_chain *scope_chain_new(VALUE *object)
{
    struct scope_chain *chain;
    *object = TypedData_Make_Struct(rb_cObject, struct scope_chain, &chain_type, chain);
    return chain;
}

static bool made_to_hide(const struct scope *scope)
{
    return scope->kind == SCOPE_SHIELD || scope->kind == SCOPE_DEADLINE_SHIELD;
}

bool scope_hides_outer(const struct scope *scope)
{
    return made_to_hide(scope) && !scope_suspended(scope);
}

// Precomputes the answers that scope_due and scope_in_force need in each wait. With a scope of another fiber open,
// which may bind or not, they go through the whole chain instead.
static void sum_up(struct scope *scope)
{
    const struct scope *outer = made_to_hide(scope) ? NULL : scope->outer;
    scope->earliest = outer && outer->earliest < scope->at ? outer->earliest : scope->at;
    scope->limit = scope->kind == SCOPE_TIMEOUT ? DEADLINE_NEVER : scope->at;
    if (outer && outer->limit < scope->limit) scope->limit = outer->limit;
}

void scope_link(struct scope *scope, struct scope_chain *chain)
{
    scope->chain = chain;
    scope->outer = chain->innermost;
    chain->innermost = scope;
    chain->other_fibers += scope->other_fiber;
    sum_up(scope);
}

// Recomputes the sums after a scope in the middle was removed, from the outermost scope on: reverses the links
// meanwhile, so that nothing is allocated.
static void sum_up_again(struct scope_chain *chain)
{
    struct scope *last = NULL, *next;
    for (struct scope *scope = chain->innermost; scope; scope = next) {
        next = scope->outer;
        scope->outer = last;
        last = scope;
    }
    chain->innermost = NULL;
    for (struct scope *scope = last; scope; scope = next) {
        next = scope->outer;
        scope->outer = chain->innermost;
        chain->innermost = scope;
        sum_up(scope);
    }
}

// For a scope that is not the innermost: its fiber has yielded, or a continuation left it.
static void unlink_from_middle(struct scope_chain *chain, const struct scope *scope)
{
    struct scope **link = &chain->innermost;
    while (*link && *link != scope)
        link = &(*link)->outer;
    if (!*link) return;
    *link = scope->outer;
    sum_up_again(chain);
}

bool scope_unlink(struct scope *scope)
{
    struct scope_chain *chain = scope->chain;
    bool uncovers = chain->innermost != scope || made_to_hide(scope);
    if (chain->innermost == scope) {
        chain->innermost = scope->outer;
    } else {
        unlink_from_middle(chain, scope);
    }
    chain->other_fibers -= scope->other_fiber;
    scope->chain = NULL;
    return uncovers;
}

void scope_set_end(struct scope *scope, deadline_t at)
{
    scope->at = at;
    sum_up_again(scope->chain);
}

deadline_t scope_in_force(const struct scope_chain *chain)
{
    if (!chain->innermost) return DEADLINE_NEVER;
    if (!chain->other_fibers) return chain->innermost->limit;
    deadline_t earliest = DEADLINE_NEVER;
    for (const struct scope *scope = chain->innermost; scope; scope = scope->outer) {
        VALUE self = scope->self;
        bool binds = scope->kind != SCOPE_TIMEOUT && scope->at < earliest && !scope_suspended(scope);
        bool hides = scope_hides_outer(scope);
        if (scope->chain != chain) break; // as in scope_due: another thread asks for a task's remaining time
        if (binds) earliest = scope->at;
        if (hides) break;
        RB_GC_GUARD(self);
    }
    return earliest;
}

bool scope_timed(const struct scope_chain *chain)
{
    for (const struct scope *scope = chain->innermost; scope; scope = scope->outer) {
        if (scope->at != DEADLINE_NEVER) return true;
    }
    return false;
}

bool scope_shielded(const struct scope_chain *chain)
{
    for (const struct scope *scope = chain->innermost; scope; scope = scope->outer) {
        if (scope->kind == SCOPE_SHIELD && !scope_suspended(scope)) return true;
    }
    return false;
}

deadline_t scope_shields_end(const struct scope_chain *chain)
{
    deadline_t latest = 0;
    for (const struct scope *scope = chain->innermost; scope; scope = scope->outer) {
        if (scope->kind == SCOPE_SHIELD && scope->at > latest && !scope_suspended(scope)) latest = scope->at;
    }
    return latest;
}

void scope_expire(struct scope *scope)
{
    scope->expired = true;
    if (scope->chain && scope->chain->passed < scope->at) scope->chain->passed = scope->at;
}

static bool counts(const struct scope *scope)
{
    return scope->expired && (scope->kind != SCOPE_TIMEOUT || !scope->failures);
}

// Without scopes of other fibers: runs no Ruby code, and stops at scopes that have no expired scope outside of them.
static struct scope *due_without_other_fibers(const struct scope_chain *chain, deadline_t now)
{
    struct scope *due = NULL;
    for (struct scope *scope = chain->innermost; scope && scope->earliest <= now; scope = scope->outer) {
        if (scope->at <= now) scope_expire(scope);
        if (counts(scope)) due = scope;
        if (scope_hides_outer(scope)) break;
    }
    return due;
}

struct scope *scope_due(const struct scope_chain *chain, deadline_t now)
{
    if (now < chain->passed) now = chain->passed;
    if (!chain->other_fibers) return due_without_other_fibers(chain, now);
    struct scope *due = NULL;
    for (struct scope *scope = chain->innermost; scope; scope = scope->outer) {
        VALUE self = scope->self;
        if (scope->at <= now) scope_expire(scope);
        bool binds = counts(scope) && !scope_suspended(scope);
        bool hides = scope_hides_outer(scope);
        // In the helper, scope_suspended and scope_hides_outer may let the thread run, which may close and forget the
        // scope.
        if (scope->chain != chain) return NULL;
        if (binds) due = scope;
        if (hides) break;
        RB_GC_GUARD(self);
    }
    return due && due->chain ? due : NULL;
}

uint64_t scope_next_retry(uint64_t retry)
{
    static const uint64_t first = 1000000, last = 20000000;
    if (!retry) return first;
    return retry < last ? retry + retry / 2 : retry;
}

// ---- filters

VALUE scope_filters(const struct scope_chain *chain)
{
    VALUE filters = 0;
    for (const struct scope *scope = chain->innermost; scope; scope = scope->outer) {
        if (scope->kind != SCOPE_FILTER || scope_suspended(scope)) continue;
        if (!filters) filters = rb_ary_new();
        rb_ary_push(filters, scope->filter);
        if (!RTEST(scope->filter)) return filters;
    }
    if (!filters || !chain->filters) return filters ? filters : chain->filters;
    return rb_ary_concat(filters, chain->filters);
}

void Init_heddle_scope(void)
{
    cScope = rb_class_new(rb_cObject);
    rb_gc_register_mark_object(cScope);
    rb_undef_alloc_func(cScope);
    rb_gc_register_mark_object(TypedData_Wrap_Struct(rb_cObject, &spares_type, &spares));
}
