#include "memcached/internals.h"

#include "os/fork.h"
#include "task/join.h"

static ID id_connect, id_greet, id_name, id_healthy;

// A waiter for a connection: an Array of what was handed over, or nil, and of the fibers to wake.
enum { TURN_GIVEN, TURN_SLEEPERS };

// ---- the object

static void mark(void *pointer)
{
    const struct memcached_server *server = pointer;
    rb_gc_mark(server->self);
    rb_gc_mark(server->idle);
    rb_gc_mark(server->waiters);
}

static size_t memsize(const void *pointer)
{
    (void)pointer;
    return sizeof(struct memcached_server);
}

static const rb_data_type_t server_type = {
    .wrap_struct_name = "Heddle::Memcached::Server",
    .function = {.dmark = mark, .dfree = RUBY_TYPED_DEFAULT_FREE, .dsize = memsize},
    .flags = RUBY_TYPED_FREE_IMMEDIATELY,
};

static VALUE allocate(VALUE klass)
{
    struct memcached_server *server;
    VALUE self = TypedData_Make_Struct(klass, struct memcached_server, &server_type, server);
    server->self = self;
    server->idle = server->waiters = Qnil;
    server->idle = rb_ary_new();
    server->waiters = rb_hash_new();
    server->limit = 1;
    server->turn_span = server->connect_span = DEADLINE_NEVER;
    server->forks = fork_count();
    return self;
}

struct memcached_server *memcached_server_of(VALUE object)
{
    return rb_check_typeddata(object, &server_type);
}

// A child of fork has its parent's sockets, but must not use them.
static void forget_parents(struct memcached_server *server)
{
    server->forks = fork_count();
    server->generation++;
    server->open = 0;
    rb_ary_clear(server->idle); // the sockets are closed with their objects; nothing is sent
    rb_hash_clear(server->waiters);
}

// ---- lending

struct first {
    VALUE number;
    VALUE waiter;
};

static int take_first(VALUE number, VALUE waiter, VALUE argument)
{
    *(struct first *)argument = (struct first){.number = number, .waiter = waiter};
    return ST_STOP;
}

// Hands over to the longest waiting: a stream, or true for the permit to open one. Does not use Hash#shift: when a
// method called from C returns, Ruby raises what another thread has sent, and the waiter and the stream would be lost.
static bool hand_over(struct memcached_server *server, VALUE what)
{
    if (RHASH_SIZE(server->waiters) == 0) return false;
    struct first first = {.number = Qnil};
    rb_hash_foreach(server->waiters, take_first, (VALUE)&first);
    rb_hash_delete(server->waiters, first.number);
    rb_ary_store(first.waiter, TURN_GIVEN, what);
    join_wake(server->self, rb_ary_entry(first.waiter, TURN_SLEEPERS));
    RB_GC_GUARD(first.waiter);
    return true;
}

struct turn {
    struct lease *lease;
    VALUE number; // key in the server's waiters
    VALUE waiter;
    deadline_t until;
};

static VALUE seconds_left(deadline_t until)
{
    if (until == DEADLINE_NEVER) return Qnil;
    int64_t left = until - deadline_now();
    return DBL2NUM(left > 0 ? (double)left / 1e9 : 0);
}

static VALUE await_turn(VALUE argument)
{
    const struct turn *turn = (const struct turn *)argument;
    const struct memcached_server *server = turn->lease->server;
    VALUE sleepers = rb_ary_entry(turn->waiter, TURN_SLEEPERS);
    while (NIL_P(rb_ary_entry(turn->waiter, TURN_GIVEN))) {
        if (turn->lease->forks != fork_count()) return Qnil;
        if (turn->until != DEADLINE_NEVER && turn->until <= deadline_now())
            rb_raise(heddle_eDeadlineExceeded,
                     "no connection to %" PRIsVALUE
                     " became free in time: %u may be open (pool:), and all of them are in use",
                     rb_funcall(server->self, id_name, 0), server->limit);
        join_wait(server->self, &sleepers, turn->until);
    }
    return Qnil;
}

// However the wait ended: what was handed over meanwhile belongs to the lease, and is given back with it.
static VALUE end_turn(VALUE argument)
{
    const struct turn *turn = (const struct turn *)argument;
    struct lease *lease = turn->lease;
    VALUE given = rb_ary_entry(turn->waiter, TURN_GIVEN);
    if (lease->forks != fork_count()) return Qnil;
    if (NIL_P(given)) {
        rb_hash_delete(lease->server->waiters, turn->number);
    } else {
        lease->counted = true;
        lease->stream = given == Qtrue ? Qnil : given;
    }
    return Qnil;
}

static void wait_for_turn(struct lease *lease, deadline_t until)
{
    struct turn turn = {.lease = lease, .until = until};
    int64_t span = lease->server->turn_span;
    if (span != DEADLINE_NEVER) {
        deadline_t limit = deadline_after(deadline_now(), span);
        if (limit < until) turn.until = limit;
    }
    turn.waiter = rb_assoc_new(Qnil, rb_hash_new());
    turn.number = ULL2NUM(lease->server->turns++);
    rb_hash_aset(lease->server->waiters, turn.number, turn.waiter);
    rb_ensure(await_turn, (VALUE)&turn, end_turn, (VALUE)&turn);
    RB_GC_GUARD(turn.waiter);
}

void memcached_lease_begin(struct lease *lease, VALUE object, deadline_t until, bool proven)
{
    struct memcached_server *server = memcached_server_of(object);
    if (server->forks != fork_count()) forget_parents(server);
    *lease = (struct lease){.server = server, .stream = Qnil, .forks = server->forks, .limit = until};
    if (server->closed) rb_raise(rb_eIOError, "the client is closed: make a new one");
    for (;;) {
        lease->generation = server->generation;
        if (NIL_P(lease->stream) && !lease->counted) {
            if (RHASH_SIZE(server->waiters) > 0) {
                wait_for_turn(lease, until);
            } else if (RARRAY_LEN(server->idle) > 0) {
                lease->counted = true;
                lease->stream = rb_ary_pop(server->idle);
            } else if (server->open < server->limit) {
                lease->counted = true;
                server->open++;
            } else {
                wait_for_turn(lease, until);
            }
            if (!lease->counted) rb_raise(rb_eIOError, "this process was forked during the wait for a connection");
            lease->had = true;
            lease->generation = server->generation;
        }
        if (NIL_P(lease->stream)) {
            deadline_t limit = deadline_after(deadline_now(), server->connect_span);
            if (limit < until) lease->limit = limit;
            lease->stream = rb_funcall(object, id_connect, 1, seconds_left(lease->limit));
            stream_of(lease->stream); // raises a TypeError here, not in the middle of an exchange
            rb_funcall(object, id_greet, 2, lease->stream, seconds_left(lease->limit));
            lease->limit = until;
            return;
        }
        if (!proven || RTEST(rb_funcall(lease->stream, id_healthy, 0))) return;
        VALUE stream = lease->stream;
        lease->stream = Qnil; // the lease keeps the permit
        stream_poison(stream_of(stream), "the server closed the connection or sent unexpected bytes");
    }
}

bool memcached_lease_interrupted(const struct lease *lease)
{
    return !NIL_P(lease->stream) && stream_was_interrupted(lease->stream);
}

void memcached_lease_end(struct lease *lease, bool in_sync)
{
    struct memcached_server *server = lease->server;
    VALUE stream = lease->stream;
    bool counted = lease->counted;
    lease->stream = Qnil;
    lease->counted = false;
    if (!counted || lease->forks != fork_count()) return;
    bool keep = in_sync && !NIL_P(stream) && lease->generation == server->generation && !server->closed;
    if (keep) {
        if (!hand_over(server, stream)) rb_ary_push(server->idle, stream);
        return;
    }
    if (!hand_over(server, Qtrue)) server->open--;
    if (!NIL_P(stream)) rb_funcall(stream, rb_intern("poison"), 0);
}

// ---- methods

/* @api private server.limit = connections */
static VALUE set_limit(VALUE self, VALUE limit)
{
    long count = NUM2LONG(limit);
    if (count < 1) rb_raise(rb_eArgError, "a pool needs at least one connection: got %ld", count);
    memcached_server_of(self)->limit = (unsigned)count;
    return limit;
}

/* @api private server.turn_limit = seconds or nil. The time to wait for a free connection. */
static VALUE set_turn_limit(VALUE self, VALUE seconds)
{
    memcached_server_of(self)->turn_span = deadline_span(seconds);
    return seconds;
}

/* @api private server.connect_limit = seconds or nil. The time to connect. */
static VALUE set_connect_limit(VALUE self, VALUE seconds)
{
    memcached_server_of(self)->connect_span = deadline_span(seconds);
    return seconds;
}

/* @api private server.abandoned? -> true or false. Returns whether an operation that probed if the server is up has
   ended without an answer since the last call. */
static VALUE take_abandoned(VALUE self)
{
    struct memcached_server *server = memcached_server_of(self);
    bool abandoned = server->abandoned;
    server->abandoned = false;
    return abandoned ? Qtrue : Qfalse;
}

/* @api private server.troubled = boolean. If true, operations call the client's #route before they use the server,
   and report success. */
static VALUE set_troubled(VALUE self, VALUE troubled)
{
    struct memcached_server *server = memcached_server_of(self);
    server->troubled = RTEST(troubled);
    server->abandoned = false;
    return troubled;
}

/* @api private server.forget: closes idle connections at once, and connections in use when they are given back. */
static VALUE forget(VALUE self)
{
    struct memcached_server *server = memcached_server_of(self);
    if (server->forks != fork_count()) forget_parents(server);
    VALUE idle = server->idle;
    server->idle = rb_ary_new();
    server->generation++;
    server->open -= (unsigned)RARRAY_LEN(idle);
    return idle;
}

/* @api private server.shut: from now on no connection is lent. */
static VALUE shut(VALUE self)
{
    memcached_server_of(self)->closed = true;
    return forget(self);
}

/* @api private server.open_connections -> Integer. The number of connections, idle or in use. */
static VALUE open_connections(VALUE self)
{
    const struct memcached_server *server = memcached_server_of(self);
    return UINT2NUM(server->forks == fork_count() ? server->open : 0);
}

/* @api private server.idle_connections -> Integer */
static VALUE idle_connections(VALUE self)
{
    const struct memcached_server *server = memcached_server_of(self);
    return LONG2NUM(server->forks == fork_count() ? RARRAY_LEN(server->idle) : 0);
}

void memcached_define_server(VALUE klass)
{
    id_connect = rb_intern("connect");
    id_greet = rb_intern("greet");
    id_name = rb_intern("name");
    id_healthy = rb_intern("healthy?");
    rb_define_alloc_func(klass, allocate);
    rb_undef_method(klass, "initialize_copy");
    rb_define_method(klass, "limit=", set_limit, 1);
    rb_define_method(klass, "turn_limit=", set_turn_limit, 1);
    rb_define_method(klass, "connect_limit=", set_connect_limit, 1);
    rb_define_method(klass, "troubled=", set_troubled, 1);
    rb_define_private_method(klass, "abandoned?", take_abandoned, 0);
    rb_define_method(klass, "forget", forget, 0);
    rb_define_method(klass, "shut", shut, 0);
    rb_define_method(klass, "open_connections", open_connections, 0);
    rb_define_method(klass, "idle_connections", idle_connections, 0);
}
