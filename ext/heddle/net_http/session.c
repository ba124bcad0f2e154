// The beginning and the end of a session on a persistent connection. A connection is taken and given in one go: no
// other code runs in the middle, and so neither an interrupt nor another thread finds it without an owner, or with two.
#include "net_http/connection.h"
#include "net_http/keep_alive.h"
#include "net_http/library.h"
#include "net_http/keyed_table.h"

#include "resolver/connect_filter.h"
#include "os/fork.h"

static VALUE keep_alive_module;

// What Ruby code has told: the KeepAlive::Store and its parts. nil until then.
static struct {
    VALUE store, table;
    VALUE plain;  // Hash: true for classes that make connections as the library does
    VALUE closed; // a closed IO
    long per_host, total;
    unsigned forks; // fork_count of the store's process
    bool chosen;    // a program's block adds to each key
} setup = {.store = Qnil, .table = Qnil, .plain = Qnil, .closed = Qnil};

// KeepAlive.keep(store, table, limits, closed, chosen): limits: the most connections to one host and port, and in all.
static VALUE session_keep(VALUE self, VALUE store, VALUE table, VALUE limits, VALUE closed, VALUE chosen)
{
    (void)self;
    setup.per_host = NUM2LONG(rb_ary_entry(limits, 0));
    setup.total = NUM2LONG(rb_ary_entry(limits, 1));
    setup.store = store;
    setup.table = table;
    setup.closed = closed;
    setup.chosen = RTEST(chosen);
    setup.forks = fork_count();
    return Qnil;
}

// KeepAlive.plain = classes
static VALUE set_plain(VALUE self, VALUE classes)
{
    (void)self;
    return setup.plain = classes;
}

// C code may fork: then nobody has told KeepAlive yet that its connections belong to the parent.
static void notice_fork(void)
{
    if (setup.forks != fork_count()) rb_funcall(keep_alive_module, id_discard, 0);
}

static VALUE session_watch(VALUE connection)
{
    return rb_funcall(setup.store, id_watch, 1, connection);
}

static VALUE session_evict(VALUE surplus)
{
    net_http_keep_alive_count(NET_HTTP_EVICTED, 1);
    net_http_connection_close(surplus);
    return Qnil;
}

// Puts a connection without a session into the store. The thread that closes connections looks at all of them. One that
// makes room is nobody's then: it is closed even if an interrupt ends the wait for that thread's lock.
static void session_give(VALUE connection)
{
    VALUE surplus = net_http_keyed_table_add(setup.table, connection, setup.per_host, setup.total);
    if (NIL_P(surplus)) {
        session_watch(connection);
    } else {
        rb_ensure(session_watch, connection, session_evict, surplus);
    }
}

// ---- the beginning

struct taking {
    VALUE http;
    VALUE connection; // nil: there is none, or it has its session
    unsigned forks;   // fork_count of the process that has taken it
    const struct net_http_key *key;
    struct net_http_settings settings;
    double now;
};

// Whether a connection that was taken may be used. Counts the others.
static bool session_fresh(struct taking *taking)
{
    struct net_http_connection *connection = net_http_connection_get(taking->connection);
    double now = taking->now = net_http_clock_now();
    if (net_http_clock_jumped(connection->offsets, now)) {
        net_http_keep_alive_count(NET_HTTP_EVICTED, 1);
        rb_funcall(keep_alive_module, id_clear, 0);
        return false;
    }
    if (net_http_connection_expired(connection, now)) {
        net_http_keep_alive_count(NET_HTTP_EVICTED, 1);
        return false;
    }
    bool usable = net_http_connection_quiet(taking->connection);
    if (usable && now - connection->named_at > net_http_keep_alive_idle) {
        VALUE limit = rb_funcall(taking->http, id_open_timeout, 0);
        usable = RTEST(rb_funcall(taking->connection, id_at_home_p, 1, limit));
        connection->named_at = taking->now = net_http_clock_now();
    }
    if (!usable) net_http_keep_alive_count(NET_HTTP_STALE, 1);
    return usable;
}

static void tell(VALUE output, const struct net_http_connection *connection)
{
    VALUE text = rb_sprintf("using a persistent connection to %" PRIsVALUE ":%" PRIsVALUE "\n", connection->values.host,
                            connection->values.port);
    rb_funcall(output, id_append, 1, text);
}

// Because @last_communicated is not nil, the library looks once more whether the server has closed the connection,
// before the first request. Heddle::NetHTTP.for replaces the BufferedIO in on_connect.
static void begin_session(const struct taking *taking)
{
    VALUE http = taking->http, output = rb_attr_get(http, iv_debug_output);
    struct net_http_connection *connection = net_http_connection_get(taking->connection);
    VALUE io = connection->io;
    VALUE buffered = net_http_library_buffered(net_http_library_of_http(http), io, &taking->settings, output);
    if (RTEST(output)) tell(output, connection);
    if (!RB_TYPE_P(io, T_FILE)) rb_ivar_set(http, iv_ssl_context, rb_funcall(io, id_context, 0));
    net_http_connection_become(connection, NET_HTTP_REUSABLE);
    RB_OBJ_WRITE(taking->connection, &connection->session, http);
    connection->forks = forks_seen(); // a child of fork has closed its copy
    rb_ivar_set(http, iv_socket, buffered);
    rb_ivar_set(http, iv_last_communicated, DBL2NUM(taking->now));
    rb_funcall(http, id_on_connect, 0);
    buffered = rb_attr_get(http, iv_socket);
    if (!NIL_P(buffered)) net_http_connection_set(buffered, taking->connection);
}

// In a child of a fork that a filter, or a trap handler meanwhile, has made, the connection is the parent's.
static VALUE drop_taken(VALUE argument)
{
    struct taking *taking = (struct taking *)argument;
    VALUE connection = taking->connection;
    taking->connection = Qnil;
    if (!NIL_P(connection)) rb_funcall(connection, taking->forks == fork_count() ? id_close : id_discard, 0);
    return Qnil;
}

static VALUE take_body(VALUE argument)
{
    struct taking *taking = (struct taking *)argument;
    for (;;) {
        notice_fork();
        taking->forks = fork_count();
        taking->connection = net_http_keyed_table_take(setup.table, taking->key);
        if (NIL_P(taking->connection)) return Qfalse;
        bool allowed = !connect_filter_asks() || RTEST(rb_funcall(taking->connection, id_allowed_p, 1,
                                                                  rb_funcall(taking->http, id_open_timeout, 0)));
        if (!allowed && taking->forks == fork_count()) {
            VALUE refused = taking->connection; // others may use it; a new connect asks for each address
            taking->connection = Qnil;
            session_give(refused);
            return Qfalse;
        }
        if (allowed && session_fresh(taking) && taking->forks == fork_count()) break;
        drop_taken(argument);
    }
    net_http_keep_alive_count(NET_HTTP_REUSED, 1);
    begin_session(taking);
    taking->connection = Qnil;
    return Qtrue;
}

static VALUE take_by(VALUE http, const struct net_http_key *key, struct net_http_settings settings)
{
    struct taking taking = {.http = http, .connection = Qnil, .key = key, .settings = settings};
    return rb_ensure(take_body, (VALUE)&taking, drop_taken, (VALUE)&taking);
}

// A keep_alive_timeout that is not positive forbids to begin with a persistent connection.
static bool positive(VALUE limit)
{
    if (FIXNUM_P(limit)) return FIX2LONG(limit) > 0;
    return RTEST(rb_obj_is_kind_of(limit, rb_cNumeric)) && RTEST(rb_funcall(limit, id_positive_p, 0));
}

// KeepAlive.resume(http, address, port, keep_alive_timeout, read_timeout, write_timeout, continue_timeout): the same as
// `take` for an object of the library's own class whose connection depends on the address and the port alone, as almost
// all do. Needs no Key. Returns nil for another object, for which `take` has to look.
static VALUE session_resume(VALUE self, VALUE http, VALUE address, VALUE port, VALUE limit, VALUE read_timeout,
                            VALUE write_timeout, VALUE continue_timeout)
{
    (void)self;
    const struct net_http_library *library = net_http_library_of_http(http);
    if (!library || CLASS_OF(http) != library->http || setup.chosen || !RB_TYPE_P(address, T_STRING) ||
        !FIXNUM_P(port) || !positive(limit) || OBJ_FROZEN(http) || rb_attr_get(http, iv_choice) == Qfalse ||
        rb_hash_lookup(setup.plain, library->http) != Qtrue || !net_http_key_is_bare(http))
        return Qnil;
    struct net_http_key key = net_http_bare_key(library->http, address, port);
    return take_by(http, &key, (struct net_http_settings){read_timeout, write_timeout, continue_timeout});
}

// KeepAlive.take(http, key): begins a session on a persistent connection, unless there is none, and returns whether it
// has. Only the start of a session takes one: a session that connects again has just found its connection unusable, and
// its request may be one that must not fail twice.
static VALUE session_take(VALUE self, VALUE http, VALUE key)
{
    (void)self;
    if (RTEST(rb_attr_get(http, iv_socket)) || rb_attr_get(http, iv_choice) == Qfalse) return Qfalse;
    if (!positive(rb_attr_get(http, iv_keep_alive_timeout))) return Qfalse;
    struct net_http_key values = net_http_key_of(key);
    VALUE taken = take_by(http, &values, net_http_settings_of(http));
    RB_GC_GUARD(key);
    return taken;
}

// ---- the end

// Whether the connection may be kept: no request is under way, no other process has it, nothing has come since, and
// neither the program nor its own requests forbid it.
static bool may_stay_open(VALUE http, VALUE self, VALUE buffered, double now)
{
    const struct net_http_connection *connection = net_http_connection_get(self);
    if (connection->state != NET_HTTP_REUSABLE || connection->forks != forks_seen()) return false;
    if (RTEST(rb_attr_get(http, iv_foreign)) || rb_attr_get(http, iv_choice) == Qfalse) return false;
    if (net_http_connection_expired(connection, now)) return false;
    if (rb_attr_get(buffered, iv_io) != connection->io || net_http_keep_alive_unread(buffered)) return false;
    return net_http_connection_quiet(self);
}

// Takes a connection away from its session, unless another thread has done so meanwhile, or has begun a request. Code
// that still has this BufferedIO, a dup of the Net::HTTP for example, finds it closed.
static bool session_detach(VALUE buffered, VALUE self, double now)
{
    struct net_http_connection *connection = net_http_connection_get(self);
    if (net_http_connection_at(buffered) != self || connection->state != NET_HTTP_REUSABLE) return false;
    connection->offsets = net_http_clock_offsets(now);
    connection->session = Qnil;
    net_http_connection_become(connection, NET_HTTP_IDLE);
    net_http_connection_set(buffered, Qnil);
    rb_ivar_set(buffered, iv_io, setup.closed);
    return true;
}

// KeepAlive.leave(http, buffered): the session ends. Puts its connection into the store, or leaves it to be closed.
static VALUE session_leave(VALUE self, VALUE http, VALUE buffered)
{
    VALUE connection = net_http_keeping ? net_http_connection_at(buffered) : Qnil;
    if (NIL_P(connection)) return Qnil;
    notice_fork();
    if (!RB_TYPE_P(net_http_connection_get(connection)->io, T_FILE))
        rb_funcall(self, id_keep_session, 2, http, connection);
    double now = net_http_clock_now();
    if (may_stay_open(http, connection, buffered, now) && session_detach(buffered, connection, now))
        session_give(connection);
    return Qnil;
}

void net_http_session_define(VALUE keep_alive)
{
    keep_alive_module = keep_alive;
    rb_gc_register_mark_object(keep_alive);
    rb_gc_register_address(&setup.store);
    rb_gc_register_address(&setup.table);
    rb_gc_register_address(&setup.plain);
    rb_gc_register_address(&setup.closed);
    rb_define_singleton_method(keep_alive, "keep", session_keep, 5);
    rb_define_singleton_method(keep_alive, "plain=", set_plain, 1);
    rb_define_singleton_method(keep_alive, "resume", session_resume, 7);
    rb_define_singleton_method(keep_alive, "take", session_take, 2);
    rb_define_singleton_method(keep_alive, "leave", session_leave, 2);
}
