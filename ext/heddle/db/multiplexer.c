// Statements of several tasks in flight on the connections of a pool: see doc/adr/0049-statements-share-connections.md.
//
// A connection that is shared is one lease of the pool, which lasts while statements have a place on it. A statement's
// request is written at once, between two switches of tasks. The tasks whose statements are in flight on a connection
// stand in line. The first one reads: it drops the answers of tasks that have left, reads its own, and wakes the next.
// So each answer is read by the task that asked, no task reads for all, and a reader that is interrupted leaves the
// rest of its answer to the next in line.
//
// A line belongs to one thread: a task of another thread, whose loop may be busy, would keep everybody else waiting.
// The GVL guards the books: other tasks and threads run only while a task waits for a place, for a connection of the
// pool, for its turn or for the server, and in Ruby code that makes or reads values.
#include "db/connection.h"
#include "db/protocol.h"
#include "os/budget.h"
#include "os/fork.h"
#include "protect.h"
#include "scope/deadline_scope.h"
#include "sync/resource_pool.h"
#include "task/current.h"
#include "task/join.h"

// ---- the objects

struct multiplexer {
    VALUE pool;
    VALUE lines;   // Array of the connections that are shared now
    VALUE waiting; // Array of the askers that wait for a place, the oldest first
    VALUE opening; // Array of the askers that wait for a connection of the pool to share
    VALUE sample;  // the Connection that was shared last, which can tell what a statement does; nil
    long most;     // places on a connection
    unsigned forks;
};

// A shared connection, and the statements in flight on it.
struct line {
    VALUE connection, native, lease, thread;
    VALUE askers; // Array of those whose answers are to come, in their order
    VALUE reader; // the fiber that reads; nil
    const struct db_operations *operations;
    uint64_t asked;     // statements since the connection is shared
    uint32_t abandoned; // answers that are owed to nobody
    long places;        // statements that are in flight, or have a place and are about to be
    bool sending;       // one of them is about to send the requests of all
    bool closing;       // takes no more statements
    bool called_in;     // … while somebody waits for a whole connection
};

enum asker_state {
    ASKER_WAITS,   // for a place
    ASKER_OPENS,   // is to share another connection
    ASKER_PLACED,  // on its line
    ASKER_REFUSED, // the pool is closed
};

struct asker {
    VALUE line, thread, fiber;
    VALUE sleepers; // see join.h
    enum asker_state state;
    bool borrows; // it waits for the pool's connection, or opens it
};

static void multiplexer_mark(void *pointer)
{
    const struct multiplexer *multiplexer = pointer;
    rb_gc_mark_movable(multiplexer->pool);
    rb_gc_mark_movable(multiplexer->lines);
    rb_gc_mark_movable(multiplexer->waiting);
    rb_gc_mark_movable(multiplexer->opening);
    rb_gc_mark_movable(multiplexer->sample);
}

static void multiplexer_compact(void *pointer)
{
    struct multiplexer *multiplexer = pointer;
    multiplexer->pool = rb_gc_location(multiplexer->pool);
    multiplexer->lines = rb_gc_location(multiplexer->lines);
    multiplexer->waiting = rb_gc_location(multiplexer->waiting);
    multiplexer->opening = rb_gc_location(multiplexer->opening);
    multiplexer->sample = rb_gc_location(multiplexer->sample);
}

static const rb_data_type_t multiplexer_type = {
    .wrap_struct_name = "Heddle::DB::Multiplexer",
    .function = {.dmark = multiplexer_mark, .dfree = RUBY_DEFAULT_FREE, .dcompact = multiplexer_compact},
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

static void line_mark(void *pointer)
{
    const struct line *line = pointer;
    rb_gc_mark_movable(line->connection);
    rb_gc_mark_movable(line->native);
    rb_gc_mark_movable(line->lease);
    rb_gc_mark_movable(line->thread);
    rb_gc_mark_movable(line->askers);
    rb_gc_mark_movable(line->reader);
}

static void line_compact(void *pointer)
{
    struct line *line = pointer;
    line->connection = rb_gc_location(line->connection);
    line->native = rb_gc_location(line->native);
    line->lease = rb_gc_location(line->lease);
    line->thread = rb_gc_location(line->thread);
    line->askers = rb_gc_location(line->askers);
    line->reader = rb_gc_location(line->reader);
}

static const rb_data_type_t line_type = {
    .wrap_struct_name = "Heddle::DB::Multiplexer line",
    .function = {.dmark = line_mark, .dfree = RUBY_DEFAULT_FREE, .dcompact = line_compact},
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

static void asker_mark(void *pointer)
{
    const struct asker *asker = pointer;
    rb_gc_mark_movable(asker->line);
    rb_gc_mark_movable(asker->thread);
    rb_gc_mark_movable(asker->fiber);
    rb_gc_mark_movable(asker->sleepers);
}

static void asker_compact(void *pointer)
{
    struct asker *asker = pointer;
    asker->line = rb_gc_location(asker->line);
    asker->thread = rb_gc_location(asker->thread);
    asker->fiber = rb_gc_location(asker->fiber);
    asker->sleepers = rb_gc_location(asker->sleepers);
}

static const rb_data_type_t asker_type = {
    .wrap_struct_name = "Heddle::DB::Multiplexer asker",
    .function = {.dmark = asker_mark, .dfree = RUBY_DEFAULT_FREE, .dcompact = asker_compact},
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

static struct line *line_of(VALUE line)
{
    return RTYPEDDATA_DATA(line);
}

static struct asker *asker_of(VALUE asker)
{
    return RTYPEDDATA_DATA(asker);
}

static void multiplexer_empty(VALUE self, struct multiplexer *multiplexer)
{
    multiplexer->forks = fork_count();
    RB_OBJ_WRITE(self, &multiplexer->lines, rb_ary_new());
    RB_OBJ_WRITE(self, &multiplexer->waiting, rb_ary_new());
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
    multiplexer->pool = multiplexer->lines = multiplexer->waiting = multiplexer->opening = multiplexer->sample = Qnil;
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

static VALUE asker_new(void)
{
    struct asker *asker;
    VALUE self = TypedData_Make_Struct(rb_cObject, struct asker, &asker_type, asker);
    asker->line = asker->thread = asker->fiber = asker->sleepers = Qnil;
    RB_OBJ_WRITE(self, &asker->thread, rb_thread_current());
    RB_OBJ_WRITE(self, &asker->fiber, rb_fiber_current());
    return self;
}

// Not rb_ary_delete, which may call ==.
static bool remove_object(VALUE list, VALUE object)
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

// Those who wait for a whole connection get one each: as many lines, those with the fewest statements, take no more.
static void call_in(const struct multiplexer *multiplexer)
{
    size_t waiting = semaphore_waiting(&resource_pool_of(multiplexer->pool)->semaphore), called = 0;
    for (long i = 0; i < RARRAY_LEN(multiplexer->lines); i++)
        called += line_of(RARRAY_AREF(multiplexer->lines, i))->called_in;
    while (called != waiting) {
        bool call = called < waiting;
        struct line *found = NULL;
        for (long i = 0; i < RARRAY_LEN(multiplexer->lines); i++) {
            struct line *line = line_of(RARRAY_AREF(multiplexer->lines, i));
            if (line->called_in == call) continue;
            if (!found || (call ? line->places < found->places : line->places > found->places)) found = line;
        }
        if (!found) return;
        found->called_in = call;
        called = call ? called + 1 : called - 1;
    }
}

// Whether the line takes statements of that asker, as soon as it has a place. A task that reads, and runs a statement
// meanwhile, such as in a decoder of its own, would wait for itself.
static bool line_serves(const struct line *line, const struct asker *asker)
{
    return line->thread == asker->thread && line->reader != asker->fiber && !line->closing && !line->called_in &&
           !line->abandoned && resource_lease_serves(line->lease) && !db_protocol_is_closed(line->native);
}

// The line with the fewest statements among those with a free place; `found`: any that serves the asker.
static VALUE best_line(const struct multiplexer *multiplexer, const struct asker *asker, bool *found)
{
    VALUE best = Qnil;
    for (long i = 0; i < RARRAY_LEN(multiplexer->lines); i++) {
        VALUE object = RARRAY_AREF(multiplexer->lines, i);
        const struct line *line = line_of(object);
        if (!line_serves(line, asker)) continue;
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
    bool room = resource_pool_room(multiplexer->pool) > to_be_opened(multiplexer);
    if (!NIL_P(line) && !room) {
        place(object, line);
        return true;
    }
    if (!room && (serves || opens(multiplexer, asker->thread))) return false;
    rb_ary_push(multiplexer->opening, object);
    asker->state = ASKER_OPENS;
    return true;
}

// Whether tasks of another thread may wait, too: they do so only where their thread has a line, or opens one, or where
// this thread's last line or opening has just ended.
static bool others_share(const struct multiplexer *multiplexer, VALUE thread)
{
    if (rb_thread_current() != thread) return true;
    for (long i = 0; i < RARRAY_LEN(multiplexer->lines); i++)
        if (line_of(RARRAY_AREF(multiplexer->lines, i))->thread != thread) return true;
    for (long i = 0; i < RARRAY_LEN(multiplexer->opening); i++)
        if (asker_of(RARRAY_AREF(multiplexer->opening, i))->thread != thread) return true;
    return false;
}

// Serves those who wait, in their order; those of one thread do not overtake each other.
static void serve_waiting(struct multiplexer *multiplexer, int *state)
{
    VALUE stuck = Qnil;
    call_in(multiplexer);
    for (long i = 0; i < RARRAY_LEN(multiplexer->waiting);) {
        VALUE object = RARRAY_AREF(multiplexer->waiting, i);
        struct asker *asker = asker_of(object);
        if (resource_pool_of(multiplexer->pool)->semaphore.closed) {
            asker->state = ASKER_REFUSED;
        } else if (asker->thread == stuck || !asker_serve(multiplexer, object)) {
            if (stuck != asker->thread && !others_share(multiplexer, asker->thread)) return;
            stuck = asker->thread;
            i++;
            continue;
        }
        remove_object(multiplexer->waiting, object);
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

// Once nobody has a place on it, the connection returns to the pool. `state` as for protect_next.
static VALUE give_lease_back(VALUE lease)
{
    resource_lease_give_back(lease);
    return Qnil;
}

static void leave_place(struct multiplexer *multiplexer, VALUE object, int *state)
{
    struct line *line = line_of(object);
    line->places--;
    serve_waiting(multiplexer, state);
    if (line->places) return;
    remove_object(multiplexer->lines, object);
    db_protocol_share(line->native, false);
    struct db_protocol *protocol = db_protocol_of(line->native);
    protocol->owes_to_nobody = line->abandoned && protocol->owed;
    protect_next(give_lease_back, line->lease, state);
}

// ---- a statement

struct shared_run {
    VALUE self, sql, arguments;
    struct multiplexer *multiplexer;
    VALUE asker;
    struct stream *stream;
    uint64_t number, begins; // of the statement on its line; of its request among the stream's bytes
    deadline_t place_until;  // the pool's limit for a place
    deadline_t until;        // the connection's timeout
    deadline_t before;       // the stream's limit while this one reads
    unsigned forks;
    bool sends; // it is about to send what its line has written
    bool whole; // the statement needs a connection of its own
    bool again; // the place is of no use: nothing was sent
    bool asked;
    bool answered;
};

static struct line *line_of_run(const struct shared_run *run)
{
    VALUE line = asker_of(run->asker)->line;
    return NIL_P(line) ? NULL : line_of(line);
}

RBIMPL_ATTR_NORETURN()
static void refuse_place(const struct multiplexer *multiplexer, bool closed)
{
    if (!closed) deadline_check(); // a deadline around the call has passed, too
    rb_funcall(multiplexer->pool, rb_intern("exhausted"), 1, closed ? Qtrue : Qfalse);
    rb_raise(rb_eRuntimeError, "no connection");
}

static void await_place(struct shared_run *run)
{
    struct multiplexer *multiplexer = run->multiplexer;
    struct asker *asker = asker_of(run->asker);
    deadline_t until = run->place_until;
    rb_ary_push(multiplexer->waiting, run->asker);
    while (asker->state == ASKER_WAITS && run->forks == fork_count()) {
        if (until != DEADLINE_NEVER && until <= deadline_now()) refuse_place(multiplexer, false);
        join_wait(run->asker, &asker->sleepers, until);
    }
}

// Shares a connection of the pool, and gives its places to those who wait. This comes first, whoever waits for a whole
// connection: they have waited for a turn together.
static void open_line(struct shared_run *run)
{
    struct multiplexer *multiplexer = run->multiplexer;
    int state = 0;
    VALUE object = line_new();
    asker_of(run->asker)->borrows = true;
    VALUE lease = resource_pool_borrow(multiplexer->pool, run->place_until);
    struct line *line = line_of(object);
    RB_OBJ_WRITE(object, &line->lease, lease);
    run->forks = fork_count(); // what makes a connection may have forked
    multiplexer_of(run->self);
    remove_object(multiplexer->opening, run->asker);
    RB_OBJ_WRITE(object, &line->connection, resource_lease_object(lease));
    VALUE native;
    line->operations = db_operations_for(line->connection, &native);
    RB_OBJ_WRITE(object, &line->native, native);
    RB_OBJ_WRITE(run->self, &multiplexer->sample, line->connection);
    place(run->asker, object); // first: from now on its end gives the lease back
    rb_ary_push(multiplexer->lines, object);
    db_protocol_share(native, true);
    while (line->places < multiplexer->most) {
        VALUE next = Qnil;
        for (long i = 0; i < RARRAY_LEN(multiplexer->waiting) && NIL_P(next); i++)
            if (line_serves(line, asker_of(RARRAY_AREF(multiplexer->waiting, i))))
                next = RARRAY_AREF(multiplexer->waiting, i);
        if (NIL_P(next)) break;
        remove_object(multiplexer->waiting, next);
        place(next, object);
        join_wake_all(next, asker_of(next)->sleepers, &state);
    }
    if (state) rb_jump_tag(state);
    RB_GC_GUARD(object);
}

static void take_place(struct shared_run *run)
{
    struct multiplexer *multiplexer = run->multiplexer;
    struct asker *asker = asker_of(run->asker);
    if (resource_pool_of(multiplexer->pool)->semaphore.closed) refuse_place(multiplexer, true);
    run->place_until = deadline_in(resource_pool_of(multiplexer->pool)->wait_span);
    bool first = true;
    for (long i = 0; i < RARRAY_LEN(multiplexer->waiting) && first; i++)
        first = asker_of(RARRAY_AREF(multiplexer->waiting, i))->thread != asker->thread;
    call_in(multiplexer);
    if (!first || !asker_serve(multiplexer, run->asker)) await_place(run);
    if (asker->state == ASKER_REFUSED) refuse_place(multiplexer, true);
    if (asker->state == ASKER_OPENS) open_line(run);
}

// Whether the statement leaves nothing behind in the session of that connection.
static bool shares(VALUE connection, VALUE sql, VALUE arguments)
{
    VALUE native;
    const struct db_operations *operations = db_operations_for(connection, &native);
    return operations && operations->ask && operations->may_share(native, sql, arguments);
}

// The first of those whose requests are written lets all tasks run that are ready, and then sends what they have
// written, too.
static void send_gathered(struct shared_run *run, struct line *line)
{
    if (line->sending) return;
    line->sending = run->sends = true;
    budget_give_way();
    line->sending = run->sends = false;
    stream_send_now(run->stream);
}

// Returns whether the statement is on its way.
static bool ask(struct shared_run *run)
{
    struct line *line = line_of_run(run);
    const struct db_protocol *protocol = db_protocol_of(line->native);
    if (line->closing || db_protocol_is_closed(line->native)) {
        run->again = true;
        return false;
    }
    if (!shares(line->connection, run->sql, run->arguments)) {
        run->whole = true;
        return false;
    }
    deadline_refuse_late();
    run->until = deadline_in(protocol->span);
    run->stream = stream_of(protocol->stream);
    run->asked = line->operations->ask(line->native, run->sql, run->arguments, &line->closing, &run->begins);
    run->again = !run->asked;
    if (!run->asked) return false;
    run->number = ++line->asked;
    rb_ary_push(line->askers, run->asker);
    stream_end_message(run->stream);
    send_gathered(run, line);
    return true;
}

RBIMPL_ATTR_NORETURN()
static void refuse_late(const struct db_protocol *protocol)
{
    rb_raise(heddle_eDeadlineExceeded,
             "the time limit of a statement passed among others that were sent to %" PRIsVALUE,
             rb_funcall(protocol->stream, rb_intern("peer"), 0));
}

// Raises IOError as soon as the connection is closed.
static void await_turn(struct shared_run *run)
{
    const struct line *line = line_of_run(run);
    const struct db_protocol *protocol = db_protocol_of(line->native);
    struct asker *asker = asker_of(run->asker);
    while (RARRAY_AREF(line->askers, 0) != run->asker) {
        stream_of(protocol->stream);
        if (run->until != DEADLINE_NEVER && run->until <= deadline_now()) refuse_late(protocol);
        join_wait(run->asker, &asker->sleepers, run->until);
        db_protocol_check_process((struct db_protocol *)protocol);
    }
}

static void begin_turn(struct shared_run *run)
{
    await_turn(run);
    VALUE object = asker_of(run->asker)->line;
    struct line *line = line_of(object);
    stream_of(db_protocol_of(line->native)->stream); // raises for a closed stream
    RB_OBJ_WRITE(object, &line->reader, rb_fiber_current());
    run->before = stream_bound(run->stream, run->until);
    if (run->before < run->until) stream_bound(run->stream, run->before);
}

// Ends a place in the line. The next one reads on; of a closed connection everybody has to know.
static void leave_line(struct shared_run *run, int *state)
{
    struct line *line = line_of_run(run);
    bool closed = db_protocol_is_closed(line->native);
    if (line->reader == asker_of(run->asker)->fiber) {
        line->reader = Qnil;
        stream_bound(run->stream, run->before);
    }
    if (!remove_object(line->askers, run->asker)) return;
    for (long i = 0; i < RARRAY_LEN(line->askers) && (closed || i == 0); i++) {
        VALUE next = RARRAY_AREF(line->askers, i);
        join_wake_all(next, asker_of(next)->sleepers, state);
    }
}

static void drop_abandoned(struct line *line, uint64_t until)
{
    while (line->asked - db_protocol_of(line->native)->owed < until) {
        line->operations->drop(line->native);
        line->abandoned--;
    }
}

// What an answer left to be asked of the server (types that this connection has not met) is asked by its reader alone,
// once all others in flight have their answers.
static void settle_alone(struct shared_run *run)
{
    struct line *line = line_of_run(run);
    VALUE unsettled = line->operations->unsettled(line->native);
    int state = 0;
    if (unsettled == Qundef) return;
    line->closing = true;
    leave_line(run, &state);
    rb_ary_push(line->askers, run->asker);
    if (state) rb_jump_tag(state);
    begin_turn(run);
    drop_abandoned(line, line->asked);
    line->operations->settle(line->native, unsettled, run->until);
    RB_GC_GUARD(unsettled);
}

static VALUE run_body(VALUE argument)
{
    struct shared_run *run = (struct shared_run *)argument;
    take_place(run);
    if (run->forks != fork_count()) run->again = true; // a trap handler has forked: asks anew in the child
    if (run->again || !ask(run)) return Qnil;
    begin_turn(run);
    struct line *line = line_of_run(run);
    drop_abandoned(line, run->number - 1);
    VALUE result = line->operations->answer(line->native);
    run->answered = true;
    settle_alone(run);
    RB_GC_GUARD(result);
    return result;
}

struct run_end {
    const struct shared_run *run;
    VALUE error, result;
    bool lost, unsent, alone;
};

static VALUE check_result(VALUE argument)
{
    const struct run_end *end = (const struct run_end *)argument;
    return db_connection_checked(line_of_run(end->run)->connection, end->result, end->run->sql);
}

// Raises what the caller gets instead of the error, if that is another one.
static VALUE tell_connection(VALUE argument)
{
    const struct run_end *end = (const struct run_end *)argument;
    const struct shared_run *run = end->run;
    bool late = run->asked && run->until != DEADLINE_NEVER && run->until <= deadline_now();
    VALUE arguments[] = {end->error, end->lost ? Qtrue : Qfalse, end->unsent ? Qtrue : Qfalse, late ? Qtrue : Qfalse,
                         run->sql,   end->alone ? Qtrue : Qfalse};
    return rb_funcallv(line_of_run(run)->connection, rb_intern("shared_interrupted"), 6, arguments);
}

// An asker that leaves before its answer has come. If it was the only one in flight, the server is told to stop the
// statement, as on a connection of its own; a cancel could hit the statement of another.
static void abandon_answer(const struct shared_run *run, struct run_end *end)
{
    struct line *line = line_of_run(run);
    if (!run->answered) line->abandoned++;
    if (end->lost || !db_protocol_of(line->native)->owed || RARRAY_LEN(line->askers)) return;
    line->closing = true;
    end->alone = true;
    db_protocol_share(line->native, false);
    db_protocol_interrupt(line->native);
}

// Everything that an `ensure` would do. `state`: how the body ended; then whether to raise. Returns the statement's
// result. Sets `again` if the statement is to be sent anew: no byte of it was sent.
static VALUE end_run(struct shared_run *run, VALUE result, int *state, bool may_repeat)
{
    struct multiplexer *multiplexer = run->multiplexer;
    struct asker *asker = asker_of(run->asker);
    struct run_end end = {.run = run, .result = result, .error = Qnil};
    if (run->forks != fork_count()) return Qnil; // the books are the parent's
    if (asker->state == ASKER_WAITS) remove_object(multiplexer->waiting, run->asker);
    if (asker->state == ASKER_OPENS) {
        remove_object(multiplexer->opening, run->asker);
        serve_waiting(multiplexer, state);
    }
    if (NIL_P(asker->line)) return Qnil;
    if (*state) {
        end.error = rb_errinfo();
        if (!is_exception(end.error)) end.error = Qnil;
        // A program's own code that makes or reads values may raise such errors, too.
        end.lost = !NIL_P(end.error) && stream_is_failure(end.error) && db_protocol_is_closed(line_of_run(run)->native);
        end.unsent = !run->asked || stream_sent(run->stream) <= run->begins;
    }
    if (run->sends) line_of_run(run)->sending = false; // whoever is first in line sends before it waits
    if (run->asked) leave_line(run, state);
    if (*state && end.lost && end.unsent && may_repeat) {
        rb_set_errinfo(Qnil);
        *state = 0;
        run->again = true;
    } else if (*state) {
        if (run->asked) abandon_answer(run, &end);
        protect_next(tell_connection, (VALUE)&end, state);
    } else if (run->answered && RTEST(rb_obj_is_kind_of(result, rb_eException))) {
        protect_next(check_result, (VALUE)&end, state);
    }
    leave_place(multiplexer, asker->line, state);
    RB_GC_GUARD(end.error);
    return result;
}

/*
 * @api private multiplexer.run(sql, arguments) -> Result or nil
 *
 * Runs a statement among those of other tasks. nil: the statement, or a caller without a scheduler, needs a connection
 * of its own.
 */
static VALUE multiplexer_run(VALUE self, VALUE sql, VALUE arguments)
{
    Check_Type(arguments, T_ARRAY);
    if (NIL_P(context_of_fiber().scheduler)) return Qnil;
    for (bool may_repeat = true;; may_repeat = false) {
        struct shared_run run = {.self = self,
                                 .sql = sql,
                                 .arguments = arguments,
                                 .multiplexer = multiplexer_of(self),
                                 .until = DEADLINE_NEVER,
                                 .forks = fork_count()};
        if (!NIL_P(run.multiplexer->sample) && !shares(run.multiplexer->sample, sql, arguments)) return Qnil;
        run.asker = asker_new();
        int state = 0;
        VALUE result = rb_protect(run_body, (VALUE)&run, &state);
        result = end_run(&run, result, &state, may_repeat);
        RB_GC_GUARD(run.asker);
        if (state) rb_jump_tag(state);
        if (run.whole) return Qnil;
        if (!run.again) return result;
    }
}

/* @api private multiplexer.sample -> Connection or nil: the one that was shared last */
static VALUE multiplexer_sample(VALUE self)
{
    return multiplexer_of(self)->sample;
}

/* @api private multiplexer.waiting -> Integer, how many statements wait for a place */
static VALUE multiplexer_waiting(VALUE self)
{
    return LONG2NUM(RARRAY_LEN(multiplexer_of(self)->waiting));
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
    rb_define_method(multiplexer, "run", multiplexer_run, 2);
    rb_define_method(multiplexer, "sample", multiplexer_sample, 0);
    rb_define_method(multiplexer, "waiting", multiplexer_waiting, 0);
    rb_define_method(multiplexer, "refuse", multiplexer_refuse, 0);
}
