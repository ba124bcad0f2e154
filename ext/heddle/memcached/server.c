#include "memcached/connection.h"

#include "os/fork.h"
#include "os/main_ractor.h"

static ID id_connect, id_greet, id_name, id_healthy, id_poison;

// ---- the object

static void memcached_server_references(void *pointer, reference_function *each)
{
    struct memcached_server *server = pointer;
    resource_pool_references(&server->pool, each);
    for (struct memcached_connection *connection = server->connections; connection; connection = connection->next)
        each(&connection->lease.held.resource.object);
}

REFERENCES(memcached_server)

static void free_records(struct memcached_connection *connection)
{
    while (connection) {
        struct memcached_connection *next = connection->next;
        xfree(connection);
        connection = next;
    }
}

static void memcached_server_release(void *pointer)
{
    if (main_ractor_releases(pointer, memcached_server_release)) return;
    struct memcached_server *server = pointer;
    resource_pool_free(&server->pool);
    free_records(server->connections);
    free_records(server->spare);
    xfree(server);
}

static size_t memcached_server_memsize(const void *pointer)
{
    return sizeof(struct memcached_server) + resource_pool_memsize(pointer);
}

static const rb_data_type_t memcached_server_type = {
    .wrap_struct_name = "Heddle::Memcached::Server",
    .function = {.dmark = memcached_server_mark,
                 .dfree = memcached_server_release,
                 .dsize = memcached_server_memsize,
                 .dcompact = memcached_server_compact},
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

// Stores the stream first: if the server does not greet, the stream is closed.
static void memcached_server_connect(struct resource_lease *held)
{
    struct lease *lease = (struct lease *)held; // its first member
    VALUE self = held->pool->semaphore.self;
    deadline_t limit = deadline_in(memcached_lease_server(lease)->connect_span);
    if (limit < lease->limit) lease->limit = limit;
    held->resource.object = rb_funcall(self, id_connect, 1, deadline_left(lease->limit));
    stream_of(held->resource.object); // raises a TypeError here, not in the middle of an exchange
    rb_funcall(self, id_greet, 2, held->resource.object, deadline_left(lease->limit));
}

static bool memcached_server_check(VALUE self, VALUE stream, bool unproven)
{
    (void)self;
    return unproven || RTEST(rb_funcall(stream, id_healthy, 0));
}

static void memcached_server_dispose(VALUE self, VALUE stream)
{
    (void)self;
    rb_funcall(stream, id_poison, 0); // harmless for one that is closed
}

static const struct resource_kind memcached_server_kind = {
    .make = memcached_server_connect, .check = memcached_server_check, .dispose = memcached_server_dispose};

static VALUE memcached_server_allocate(VALUE klass)
{
    struct memcached_server *server;
    VALUE self = TypedData_Make_Struct(klass, struct memcached_server, &memcached_server_type, server);
    resource_pool_init(&server->pool, self, &memcached_server_kind);
    server->connect_span = DEADLINE_NEVER;
    server->forks = fork_count();
    return self;
}

// In a child of fork the exchanges are the parent's, and their connections, too. One of them may run here: it looks at
// its own count of forks before it touches the record.
static void forget_connections(struct memcached_server *server)
{
    server->forks = fork_count();
    while (server->connections) {
        struct memcached_connection *connection = server->connections;
        server->connections = connection->next;
        connection->next = server->spare;
        server->spare = connection;
    }
}

struct memcached_server *memcached_server_now(struct memcached_server *server)
{
    if (server->forks == fork_count()) return server;
    forget_connections(server);
    resource_pool_enter(&server->pool);
    return server;
}

struct memcached_server *memcached_server_of(VALUE object)
{
    return memcached_server_now(rb_check_typeddata(object, &memcached_server_type));
}

// ---- lending

void memcached_refuse_late(const struct memcached_server *server)
{
    rb_raise(heddle_eDeadlineExceeded,
             "no connection to %" PRIsVALUE " became free in time: %ld may be open (pool:), and all of them are in use",
             rb_funcall(server->pool.semaphore.self, id_name, 0), server->pool.semaphore.permits);
}

void memcached_lease_begin(struct lease *lease, deadline_t limit, deadline_t until, bool proven)
{
    lease->limit = until;
    do {
        enum semaphore_answer answer = resource_lease_permit(&lease->held, limit);
        if (answer == SEMAPHORE_CLOSED) rb_raise(rb_eIOError, "the client is closed: make a new one");
        if (answer == SEMAPHORE_LATE) memcached_refuse_late(memcached_lease_server(lease));
        lease->had = true;
    } while (!resource_lease_fill(&lease->held, !proven));
    lease->limit = until;
}

bool memcached_lease_interrupted(const struct lease *lease)
{
    VALUE stream = memcached_lease_stream(lease);
    return !NIL_P(stream) && stream_was_interrupted(stream);
}

void memcached_lease_end(struct lease *lease, bool in_sync)
{
    resource_lease_end(&lease->held, in_sync);
    lease->held.resource.object = Qnil;
}

// ---- methods

/* @api private server.limit = connections */
static VALUE memcached_server_set_limit(VALUE self, VALUE limit)
{
    long count = NUM2LONG(limit);
    if (count < 1) rb_raise(rb_eArgError, "a pool needs at least one connection: got %ld", count);
    memcached_server_of(self)->pool.semaphore.permits = count;
    return limit;
}

/* @api private server.turn_limit = seconds or nil. The time to wait for a free connection. */
static VALUE memcached_server_set_turn_limit(VALUE self, VALUE seconds)
{
    memcached_server_of(self)->pool.wait_span = deadline_span(seconds);
    return seconds;
}

/* @api private server.connect_limit = seconds or nil. The time to connect. */
static VALUE memcached_server_set_connect_limit(VALUE self, VALUE seconds)
{
    memcached_server_of(self)->connect_span = deadline_span(seconds);
    return seconds;
}

/* @api private server.abandoned? -> true or false. Returns whether an operation that probed if the server is up has
   ended without an answer since the last call. */
static VALUE memcached_server_take_abandoned(VALUE self)
{
    struct memcached_server *server = memcached_server_of(self);
    bool abandoned = server->abandoned;
    server->abandoned = false;
    return abandoned ? Qtrue : Qfalse;
}

/* @api private server.troubled = boolean. If true, operations call the client's #route before they use the server,
   and report success. */
static VALUE memcached_server_set_troubled(VALUE self, VALUE troubled)
{
    struct memcached_server *server = memcached_server_of(self);
    server->troubled = RTEST(troubled);
    server->abandoned = false;
    return troubled;
}

/* @api private server.take_idle -> Array of the idle connections, to be closed. Those in use are closed when they are
   given back. */
static VALUE memcached_server_take_idle(VALUE self)
{
    return resource_pool_take_all(&memcached_server_of(self)->pool);
}

/* @api private server.shut: from now on no connection is lent. Like #take_idle. */
static VALUE memcached_server_shut(VALUE self)
{
    semaphore_close(&memcached_server_of(self)->pool.semaphore);
    return memcached_server_take_idle(self);
}

/* @api private server.open_connections -> Integer. The number of connections, idle or in use. */
static VALUE memcached_server_open(VALUE self)
{
    return LONG2NUM(memcached_server_of(self)->pool.open);
}

/* @api private server.idle_connections -> Integer */
static VALUE memcached_server_idle(VALUE self)
{
    return LONG2NUM(memcached_server_of(self)->pool.idle_count);
}

void memcached_server_define(VALUE klass)
{
    id_connect = rb_intern("connect");
    id_greet = rb_intern("greet");
    id_name = rb_intern("name");
    id_healthy = rb_intern("healthy?");
    id_poison = rb_intern("poison");
    rb_define_alloc_func(klass, memcached_server_allocate);
    rb_undef_method(klass, "initialize_copy");
    rb_define_method(klass, "limit=", memcached_server_set_limit, 1);
    rb_define_method(klass, "turn_limit=", memcached_server_set_turn_limit, 1);
    rb_define_method(klass, "connect_limit=", memcached_server_set_connect_limit, 1);
    rb_define_method(klass, "troubled=", memcached_server_set_troubled, 1);
    rb_define_private_method(klass, "abandoned?", memcached_server_take_abandoned, 0);
    rb_define_method(klass, "take_idle", memcached_server_take_idle, 0);
    rb_define_method(klass, "shut", memcached_server_shut, 0);
    rb_define_method(klass, "open_connections", memcached_server_open, 0);
    rb_define_method(klass, "idle_connections", memcached_server_idle, 0);
}
