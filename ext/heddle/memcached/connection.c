// Who has a place on which connection. The GVL guards the books: other tasks and threads run only while an exchange
// waits for a connection of the pool, or for another exchange to open one.
#include "memcached/connection.h"

#include "os/fork.h"
#include "scope/deadline_scope.h"

enum { MOST = 16 }; // exchanges on a connection: memcached turns to another one after 20 requests

// ---- the server's connections

static struct memcached_connection *connection_new(struct memcached_server *server, struct loop *loop)
{
    struct memcached_connection *connection = server->spare;
    if (connection) {
        server->spare = connection->next;
    } else {
        connection = ALLOC(struct memcached_connection);
    }
    *connection = (struct memcached_connection){
        .server = server, .loop = loop, .lease = memcached_lease_of(server), .next = server->connections};
    server->connections = connection;
    return connection;
}

static void connection_drop(struct memcached_connection *connection)
{
    struct memcached_server *server = connection->server;
    struct memcached_connection **link = &server->connections;
    while (*link != connection)
        link = &(*link)->next;
    *link = connection->next;
    connection->next = server->spare;
    server->spare = connection;
}

// ---- which one

// Whether the connection takes no more because somebody waits for one of the pool. As many do as there are who wait:
// those with the fewest exchanges, of which one has none soon, since it gets none.
static bool called_in(const struct memcached_connection *connection)
{
    size_t waiting = semaphore_waiting(&connection->server->pool.semaphore), fewer = 0;
    if (!waiting || !connection->open) return false;
    bool before = true;
    for (const struct memcached_connection *other = connection->server->connections; other; other = other->next) {
        if (other == connection) before = false;
        fewer += other->open && (other->places < connection->places || (before && other->places == connection->places));
    }
    return fewer < waiting;
}

// Whether the exchange may send its request there, as far as is known now.
static bool connection_serves(const struct memcached_connection *connection, const struct exchange *exchange)
{
    if (connection->loop != exchange->turn.loop) return false;
    if (!connection->open) return true;
    return resource_lease_lasts(&connection->lease.held) && !stream_line_abandoned(&connection->line) &&
           (exchange->again || connection->proven) && !memcached_connection_lost(connection);
}

// A large value, of which a part has come, would delay whoever comes now.
static bool connection_has_room(const struct memcached_connection *connection)
{
    return connection->places < MOST && !connection->rest && !connection->full && !called_in(connection);
}

// A trap handler that runs in a fiber's wait would wait for that fiber.
static bool among(const struct stream_turns *turns, VALUE fiber)
{
    for (const struct stream_turn *turn = turns->first; turn; turn = turn->behind)
        if (turn->fiber == fiber) return true;
    return false;
}

// The connection with the fewest exchanges, an open one first; NULL if none takes the exchange.
static struct memcached_connection *best_connection(const struct memcached_server *server,
                                                    const struct exchange *exchange)
{
    struct memcached_connection *best = NULL;
    for (struct memcached_connection *other = server->connections; other; other = other->next) {
        if (!connection_has_room(other) || !connection_serves(other, exchange)) continue;
        if (!best || (other->open == best->open ? other->places < best->places : other->open)) best = other;
    }
    if (!best || among(&best->line.turns, exchange->turn.fiber) || among(&best->coming, exchange->turn.fiber))
        return NULL;
    return best;
}

// ---- to open one

static void share(struct memcached_connection *connection, bool shared)
{
    stream_set_resumable(connection->stream, shared);
    stream_set_shared(connection->stream, shared);
}

// Returns false in a child of a fork that was made meanwhile, whose books are others.
static bool open_connection(struct exchange *exchange, deadline_t limit)
{
    struct memcached_connection *connection = exchange->connection;
    bool proof = connection->proof_wanted; // others may come who want one, while this one waits
    connection->opener = exchange;
    memcached_lease_begin(&exchange->lease, limit, exchange->until, proof);
    if (exchange->forks != fork_count()) {
        exchange->connection = NULL;
        memcached_lease_end(&exchange->lease, true);
        return false;
    }
    VALUE object = memcached_lease_stream(&exchange->lease);
    connection->stream = stream_of(object);
    connection->lease = exchange->lease;
    exchange->lease.held.permit = false;
    RB_OBJ_WRITTEN(connection->server->pool.semaphore.self, Qundef, object);
    connection->opener = NULL;
    connection->open = true;
    connection->proven = proof || connection->lease.held.made;
    // Requests would have to begin and end with TLS's records: see shard.c.
    if (stream_encrypted(connection->stream)) {
        connection->server->encrypted = true;
        connection->loop = NULL;
    }
    if (connection->loop) share(connection, true);
    stream_turn_leave(&exchange->turn);
    stream_turns_wake_all(&connection->coming);
    RB_GC_GUARD(object);
    return true;
}

RBIMPL_ATTR_NORETURN()
static void refuse_late(const struct memcached_connection *connection)
{
    VALUE server = connection->server->pool.semaphore.self;
    if (!connection->opener->lease.had) memcached_refuse_late(connection->server);
    rb_raise(heddle_eDeadlineExceeded,
             "no connection to %" PRIsVALUE " was open in time: another operation, whose connection this one was to "
             "share, is still connecting",
             rb_funcall(server, rb_intern("name"), 0));
}

// Whoever is first opens the connection; the next one does if that fails. Returns whether the exchange has its place.
static bool connection_await(struct exchange *exchange, deadline_t limit)
{
    struct memcached_connection *connection = exchange->connection;
    while (!connection->open) {
        if (!connection->opener) return open_connection(exchange, limit);
        if (limit != DEADLINE_NEVER && limit <= deadline_now()) refuse_late(connection);
        stream_turn_sleep(&exchange->turn, connection->server->pool.semaphore.self, limit);
        if (exchange->forks != fork_count()) {
            exchange->connection = NULL; // the parent's
            return false;
        }
    }
    stream_turn_leave(&exchange->turn);
    return connection_serves(connection, exchange);
}

// Another connection of the pool comes first. Returns NULL if there is one, or if none is to be shared.
static struct memcached_connection *shared_connection(struct memcached_server *server, const struct exchange *exchange)
{
    long room = resource_pool_room(&server->pool);
    if (room > 1) server->crowded = false;
    if (room > 0) return NULL;
    server->crowded = true;
    return best_connection(server, exchange);
}

void memcached_connection_enter(struct exchange *exchange)
{
    deadline_t limit = deadline_in(memcached_lease_server(&exchange->lease)->pool.wait_span);
    if (exchange->until < limit) limit = exchange->until;
    for (;;) {
        struct memcached_server *server = memcached_server_now(memcached_lease_server(&exchange->lease));
        struct memcached_connection *connection = NULL;
        struct loop *loop = server->encrypted ? NULL : exchange->loop;
        exchange->forks = server->forks;
        exchange->turn = (struct stream_turn){.loop = loop};
        if (loop) {
            exchange->turn.fiber = rb_fiber_current();
            connection = shared_connection(server, exchange);
        }
        if (!connection) connection = connection_new(server, loop);
        connection->places++;
        exchange->connection = connection;
        if (connection->open) return;
        if (!exchange->again) connection->proof_wanted = true;
        stream_turn_stand(&connection->coming, &exchange->turn);
        if (connection_await(exchange, limit)) return;
        memcached_connection_leave(exchange);
    }
}

void memcached_connection_leave(struct exchange *exchange)
{
    struct memcached_connection *connection = exchange->connection;
    if (!connection || exchange->forks != fork_count()) return;
    exchange->connection = NULL;
    if (connection->opener == exchange) connection->opener = NULL;
    stream_line_leave(&connection->line, &exchange->turn, memcached_connection_lost(connection));
    if (!connection->open) stream_turns_wake_first(&connection->coming);
    if (--connection->places) return;
    struct lease lease = connection->lease;
    bool in_sync = connection->line.asked == connection->line.answered;
    if (connection->open) {
        if (connection->loop) share(connection, false);
        stream_bound(connection->stream, DEADLINE_NEVER);
    }
    connection_drop(connection);
    memcached_lease_end(&lease, in_sync);
}
