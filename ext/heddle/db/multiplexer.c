// Who has a place on which connection: see multiplexer.h.
//
// The GVL guards the books: other tasks and threads run only while a task waits for a place or for a connection of the
// pool.
#include "db/multiplexer.h"
#include "db/protocol.h"
#include "os/fork.h"
#include "protect.h"
#include "references.h"
#include "scope/deadline_scope.h"
#include "sync/resource_pool.h"
#include "task/join.h"

// ---- the objects

struct multiplexer {
    VALUE pool;
    VALUE lines;   // Array of the connections that are shared now
    VALUE queues;  // Array of Arrays, one a thread: the askers that wait for a place, the oldest first; none is empty
    VALUE opening; // Array of the askers that wait for a connection of the pool to share
    VALUE sample;  // the Connection that was shared last; nil
    uint64_t came; // askers that have waited for a place
    long most;     // places on a connection
    unsigned forks;
};

static void multiplexer_references(void *pointer, reference_function *each)
{
    struct multiplexer *multiplexer = pointer;
    each(&multiplexer->pool);
    each(&multiplexer->lines);
    each(&multiplexer->queues);
    each(&multiplexer->opening);
    each(&multiplexer->sample);
}

REFERENCES(multiplexer)

static const rb_data_type_t multiplexer_type = {
    .wrap_struct_name = "Heddle::DB::Multiplexer",
    .function = {.dmark = multiplexer_mark, .dfree = RUBY_DEFAULT_FREE, .dcompact = multiplexer_compact},
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

static void line_references(void *pointer, reference_function *each)
{
    struct line *line = pointer;
    each(&line->connection);
    each(&line->native);
    each(&line->lease);
    each(&line->thread);
    each(&line->askers);
    each(&line->reader);
}

REFERENCES(line)

static const rb_data_type_t line_type = {
    .wrap_struct_name = "Heddle::DB::Multiplexer line",
    .function = {.dmark = line_mark, .dfree = RUBY_DEFAULT_FREE, .dcompact = line_compact},
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

static void asker_references(void *pointer, reference_function *each)
{
    struct asker *asker = pointer;
    each(&asker->line);
    each(&asker->thread);
    each(&asker->fiber);
    each(&asker->sleepers);
}

REFERENCES(asker)

static const rb_data_type_t asker_type = {
    .wrap_struct_name = "Heddle::DB::Multiplexer asker",
    .function = {.dmark = asker_mark, .dfree = RUBY_DEFAULT_FREE, .dcompact = asker_compact},
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

struct line *line_of(VALUE line)
{
    return RTYPEDDATA_DATA(line);
}

uint64_t line_replied(const struct line *line)
{
    const struct db_protocol *protocol = db_protocol_of(line->native);
    return protocol->requested - protocol->owed;
}

bool line_is_shareable(const struct line *line)
{
    return line->operations->is_shareable(line->native);
}

static bool owes_to_nobody(const struct line *line)
{
    return line_replied(line) < line->abandoned;
}

struct asker *asker_of(VALUE asker)
{
    return RTYPEDDATA_DATA(asker);
}

static void multiplexer_empty(VALUE self, struct multiplexer *multiplexer)
{
    multiplexer->forks = fork_count();
    RB_OBJ_WRITE(self, &multiplexer->lines, rb_ary_new());
    RB_OBJ_WRITE(self, &multiplexer->queues, rb_ary_new());
    RB_OBJ_WRITE(self, &multiplexer->opening, rb_ary_new());
}

// In a child of fork all lines and askers are the parent's.
static struct multiplexer *multiplexer_of(VALUE self)
{
    struct multiplexer *multiplexer = rb_check_typeddata(self, &multiplexer_type);
    if (multiplexer->forks != fork_count()) multiplexer_empty(self, multiplexer);
    return multiplexer;
}

static VALUE multiplexer_allocate(VALUE klass)
{
    struct multiplexer *multiplexer;
    VALUE self = TypedData_Make_Struct(klass, struct multiplexer, &multiplexer_type, multiplexer);
    multiplexer->pool = multiplexer->lines = multiplexer->queues = multiplexer->opening = multiplexer->sample = Qnil;
    multiplexer_empty(self, multiplexer);
    return self;
}

static VALUE line_new(void)
{
    struct line *line;
    VALUE self = TypedData_Make_Struct(rb_cObject, struct line, &line_type, line);
    line->connection = line->native = line->lease = line->thread = line->askers = line->reader = Qnil;
    RB_OBJ_WRITE(self, &line->thread, rb_thread_current());
    RB_OBJ_WRITE(self, &line->askers, rb_ary_new());
    return self;
}

VALUE asker_new(void)
{
    struct asker *asker;
    VALUE self = TypedData_Make_Struct(rb_cObject, struct asker, &asker_type, asker);
    asker->line = asker->thread = asker->fiber = asker->sleepers = Qnil;
    RB_OBJ_WRITE(self, &asker->thread, rb_thread_current());
    RB_OBJ_WRITE(self, &asker->fiber, rb_fiber_current());
    asker->forks = fork_count();
    return self;
}

bool remove_object(VALUE list, VALUE object)
{
    for (long i = 0; i < RARRAY_LEN(list); i++) {
        if (RARRAY_AREF(list, i) != object) continue;
        if (i) {
            rb_ary_delete_at(list, i);
        } else {
            rb_ary_shift(list);
        }
        return true;
    }
    return false;
}

// ---- places

// Whether the line takes no more because somebody waits for a whole connection. As many do as there are who wait: those
// with the fewest statements, of which one has none soon, since it gets none.
static bool called_in(const struct multiplexer *multiplexer, const struct line *line)
{
    size_t waiting = semaphore_waiting(&resource_pool_of(multiplexer->pool)->semaphore), fewer = 0;
    bool before = true;
    for (long i = 0; waiting && i < RARRAY_LEN(multiplexer->lines); i++) {
        const struct line *other = line_of(RARRAY_AREF(multiplexer->lines, i));
        if (other == line) before = false;
        fewer += other->places < line->places || (before && other->places == line->places);
    }
    return fewer < waiting;
}

// Whether the line takes statements of that asker, as soon as it has a place. A task that reads, and runs a statement
// meanwhile, such as in a decoder of its own, would wait for itself.
static bool line_serves(const struct line *line, const struct asker *asker)
{
    return line->thread == asker->thread && line->reader != asker->fiber && !line->closing && !owes_to_nobody(line) &&
           resource_lease_lasts(resource_lease_of(line->lease)) && !db_protocol_is_closed(line->native) &&
           line_is_shareable(line);
}

// The line with the fewest statements among those with a free place; `found`: any that serves the asker.
static VALUE best_line(const struct multiplexer *multiplexer, const struct asker *asker, bool *found)
{
    VALUE best = Qnil;
    for (long i = 0; i < RARRAY_LEN(multiplexer->lines); i++) {
        VALUE object = RARRAY_AREF(multiplexer->lines, i);
        const struct line *line = line_of(object);
        if (!line_serves(line, asker) || called_in(multiplexer, line)) continue;
        *found = true;
        if (line->places >= multiplexer->most) continue;
        if (NIL_P(best) || line->places < line_of(best)->places) best = object;
    }
    return best;
}

static bool opens(const struct multiplexer *multiplexer, VALUE thread)
{
    for (long i = 0; i < RARRAY_LEN(multiplexer->opening); i++)
        if (asker_of(RARRAY_AREF(multiplexer->opening, i))->thread == thread) return true;
    return false;
}

// Connections that were promised, and are not yet asked for.
static long to_be_opened(const struct multiplexer *multiplexer)
{
    long count = 0;
    for (long i = 0; i < RARRAY_LEN(multiplexer->opening); i++)
        count += !asker_of(RARRAY_AREF(multiplexer->opening, i))->borrows;
    return count;
}

static VALUE queue_of(const struct multiplexer *multiplexer, VALUE thread)
{
    for (long i = 0; i < RARRAY_LEN(multiplexer->queues); i++) {
        VALUE queue = RARRAY_AREF(multiplexer->queues, i);
        if (asker_of(rb_ary_entry(queue, 0))->thread == thread) return queue;
    }
    return Qnil;
}

static void queue_up(VALUE self, VALUE asker)
{
    struct multiplexer *multiplexer = multiplexer_of(self);
    VALUE queue = queue_of(multiplexer, asker_of(asker)->thread);
    asker_of(asker)->state = ASKER_WAITS;
    asker_of(asker)->came = ++multiplexer->came;
    if (NIL_P(queue)) {
        rb_ary_push(multiplexer->queues, rb_ary_new_from_args(1, asker));
    } else {
        rb_ary_push(queue, asker);
    }
}

static void leave_queue(const struct multiplexer *multiplexer, VALUE asker)
{
    VALUE queue = queue_of(multiplexer, asker_of(asker)->thread);
    if (NIL_P(queue) || !remove_object(queue, asker)) return;
    if (!RARRAY_LEN(queue)) remove_object(multiplexer->queues, queue);
}

// The first asker of a thread that came next after the `after`th; nil.
static VALUE first_after(const struct multiplexer *multiplexer, uint64_t after)
{
    VALUE found = Qnil;
    for (long i = 0; i < RARRAY_LEN(multiplexer->queues); i++) {
        VALUE asker = rb_ary_entry(RARRAY_AREF(multiplexer->queues, i), 0);
        if (asker_of(asker)->came <= after) continue;
        if (NIL_P(found) || asker_of(asker)->came < asker_of(found)->came) found = asker;
    }
    return found;
}

static void place(VALUE asker, VALUE line)
{
    line_of(line)->places++;
    RB_OBJ_WRITE(asker, &asker_of(asker)->line, line);
    asker_of(asker)->state = ASKER_PLACED;
}

// Gives the asker what it needs, if that is there: a connection that nobody uses, a place, or the task to wait for a
// connection, for which one of each thread waits.
static bool asker_serve(struct multiplexer *multiplexer, VALUE object)
{
    struct asker *asker = asker_of(object);
    bool serves = false;
    VALUE line = best_line(multiplexer, asker, &serves);
    bool room = resource_pool_room(resource_pool_of(multiplexer->pool)) > to_be_opened(multiplexer);
    if (!NIL_P(line) && !room) {
        place(object, line);
        return true;
    }
    if (!room && (serves || opens(multiplexer, asker->thread))) return false;
    rb_ary_push(multiplexer->opening, object);
    asker->state = ASKER_OPENS;
    return true;
}

// Serves those who wait, in their order; those of one thread do not overtake each other.
static void serve_waiting(struct multiplexer *multiplexer, int *state)
{
    VALUE object;
    for (uint64_t tried = 0; !NIL_P(object = first_after(multiplexer, tried));) {
        struct asker *asker = asker_of(object);
        tried = asker->came;
        if (resource_pool_of(multiplexer->pool)->semaphore.closed) {
            asker->state = ASKER_REFUSED;
        } else if (!asker_serve(multiplexer, object)) {
            continue;
        }
        leave_queue(multiplexer, object);
        join_wake_all(object, asker->sleepers, state);
        RB_GC_GUARD(object);
    }
}

// A connection of the pool is free: it comes before a place on a shared one.
static void multiplexer_spare(VALUE self, int *state)
{
    serve_waiting(multiplexer_of(self), state);
}

/* @api private Multiplexer.new(pool, most) */
static VALUE multiplexer_initialize(VALUE self, VALUE pool, VALUE most)
{
    struct multiplexer *multiplexer = multiplexer_of(self);
    RB_OBJ_WRITE(self, &multiplexer->pool, pool);
    multiplexer->most = NUM2LONG(most);
    semaphore_listen(&resource_pool_of(pool)->semaphore, self, multiplexer_spare);
    return self;
}

// ---- to come and to leave

RBIMPL_ATTR_NORETURN()
static void refuse_place(const struct multiplexer *multiplexer, bool closed)
{
    if (!closed) deadline_check(); // a deadline around the call has passed, too
    rb_funcall(multiplexer->pool, rb_intern("exhausted"), 1, closed ? Qtrue : Qfalse);
    rb_raise(rb_eRuntimeError, "no connection");
}

static void await_place(VALUE self, VALUE object, deadline_t until)
{
    struct asker *asker = asker_of(object);
    queue_up(self, object);
    while (asker->state == ASKER_WAITS && asker->forks == fork_count()) {
        if (until != DEADLINE_NEVER && until <= deadline_now()) refuse_place(multiplexer_of(self), false);
        join_wait(object, &asker->sleepers, until);
    }
}

// Shares a connection of the pool, and gives its places to those who wait. This comes first, whoever waits for a whole
// connection: they have waited for a turn together.
static void open_line(VALUE self, VALUE asker, deadline_t until)
{
    int state = 0;
    VALUE object = line_new();
    struct line *line = line_of(object);
    asker_of(asker)->borrows = true;
    RB_OBJ_WRITE(object, &line->lease, resource_pool_borrow(multiplexer_of(self)->pool, until));
    struct multiplexer *multiplexer = multiplexer_of(self);
    asker_of(asker)->forks = fork_count(); // what makes a connection may have forked
    remove_object(multiplexer->opening, asker);
    RB_OBJ_WRITE(object, &line->connection, resource_lease_of(line->lease)->resource.object);
    VALUE native;
    line->operations = db_operations_for(line->connection, &native);
    RB_OBJ_WRITE(object, &line->native, native);
    RB_OBJ_WRITE(self, &multiplexer->sample, line->connection);
    place(asker, object); // first: from now on its end gives the lease back
    rb_ary_push(multiplexer->lines, object);
    db_protocol_share(native, true);
    VALUE queue = queue_of(multiplexer, line->thread);
    while (!NIL_P(queue) && RARRAY_LEN(queue) && line->places < multiplexer->most) {
        VALUE next = RARRAY_AREF(queue, 0);
        if (!line_serves(line, asker_of(next))) break;
        leave_queue(multiplexer, next);
        place(next, object);
        join_wake_all(next, asker_of(next)->sleepers, &state);
    }
    if (state) rb_jump_tag(state);
    RB_GC_GUARD(object);
    RB_GC_GUARD(queue);
}

void multiplexer_place(VALUE self, VALUE object)
{
    struct multiplexer *multiplexer = multiplexer_of(self);
    struct asker *asker = asker_of(object);
    const struct resource_pool *pool = resource_pool_of(multiplexer->pool);
    if (pool->semaphore.closed) refuse_place(multiplexer, true);
    deadline_t until = deadline_in(pool->wait_span);
    if (!NIL_P(queue_of(multiplexer, asker->thread)) || !asker_serve(multiplexer, object))
        await_place(self, object, until);
    if (asker->state == ASKER_REFUSED) refuse_place(multiplexer, true);
    if (asker->state == ASKER_OPENS) open_line(self, object, until);
}

static VALUE give_lease_back(VALUE lease)
{
    resource_lease_give_back(lease);
    return Qnil;
}

static void give_place_back(struct multiplexer *multiplexer, VALUE object, int *state)
{
    struct line *line = line_of(object);
    line->places--;
    serve_waiting(multiplexer, state);
    if (line->places) return;
    remove_object(multiplexer->lines, object);
    db_protocol_share(line->native, false);
    db_protocol_of(line->native)->owes_to_nobody = owes_to_nobody(line);
    protect_next(give_lease_back, line->lease, state);
}

void multiplexer_leave(VALUE self, VALUE object, int *state)
{
    struct multiplexer *multiplexer = multiplexer_of(self);
    struct asker *asker = asker_of(object);
    if (asker->forks != fork_count()) return; // the books are the parent's
    if (asker->state == ASKER_WAITS) leave_queue(multiplexer, object);
    if (asker->state == ASKER_OPENS) {
        remove_object(multiplexer->opening, object);
        serve_waiting(multiplexer, state);
    }
    if (!NIL_P(asker->line)) give_place_back(multiplexer, asker->line, state);
}

/* @api private multiplexer.sample -> Connection or nil: the one that was shared last */
VALUE multiplexer_sample(VALUE self)
{
    return multiplexer_of(self)->sample;
}

/* @api private multiplexer.waiting -> Integer, how many statements wait for a place */
static VALUE multiplexer_waiting(VALUE self)
{
    const struct multiplexer *multiplexer = multiplexer_of(self);
    long waiting = 0;
    for (long i = 0; i < RARRAY_LEN(multiplexer->queues); i++)
        waiting += RARRAY_LEN(RARRAY_AREF(multiplexer->queues, i));
    return LONG2NUM(waiting);
}

/* @api private multiplexer.refuse: the pool is closed, which those who wait have to know. */
static VALUE multiplexer_refuse(VALUE self)
{
    int state = 0;
    serve_waiting(multiplexer_of(self), &state);
    if (state) rb_jump_tag(state);
    return self;
}

void Init_heddle_multiplexer(void)
{
    VALUE db = rb_define_module_under(heddle_module, "DB");
    VALUE multiplexer = rb_define_class_under(db, "Multiplexer", rb_cObject);
    rb_define_alloc_func(multiplexer, multiplexer_allocate);
    rb_undef_method(multiplexer, "initialize_copy");
    rb_define_method(multiplexer, "initialize", multiplexer_initialize, 2);
    rb_define_method(multiplexer, "sample", multiplexer_sample, 0);
    rb_define_method(multiplexer, "waiting", multiplexer_waiting, 0);
    rb_define_method(multiplexer, "refuse", multiplexer_refuse, 0);
}
