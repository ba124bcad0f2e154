#include "net_http/connection.h"

#include "heddle.h"
#include "net_http/names.h"
#include "os/fork.h"
#include "references.h"
#include "shims.h"

#include <errno.h>
#include <math.h>
#include <sys/socket.h>

// ---- the object

static void connection_references(void *pointer, reference_function *each)
{
    struct net_http_connection *connection = pointer;
    each(&connection->key);
    each(&connection->io);
    each(&connection->session);
    each(&connection->retries);
    each(&connection->response);
    each(&connection->disguised);
    net_http_key_references(&connection->values, each);
}

REFERENCES(connection)

static size_t connection_memsize(const void *pointer)
{
    (void)pointer;
    return sizeof(struct net_http_connection);
}

static const rb_data_type_t connection_type = {
    .wrap_struct_name = "Heddle::NetHTTP::KeepAlive::Connection",
    .function = {.dmark = connection_mark,
                 .dfree = RUBY_DEFAULT_FREE,
                 .dsize = connection_memsize,
                 .dcompact = connection_compact},
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

static VALUE connection_allocate(VALUE klass)
{
    struct net_http_connection *connection;
    VALUE self = TypedData_Make_Struct(klass, struct net_http_connection, &connection_type, connection);
    connection->key = connection->io = connection->session = connection->retries = Qnil;
    connection->response = connection->disguised = Qnil;
    connection->expires_at = connection->offsets.boot = connection->offsets.day = NAN;
    connection->state = NET_HTTP_PINNED; // until it has a socket
    return self;
}

struct net_http_connection *net_http_connection_get(VALUE connection)
{
    return rb_check_typeddata(connection, &connection_type);
}

// initialize(key, http): of a session that has connected now, before an exchange or in the middle of one.
static VALUE connection_initialize(VALUE self, VALUE key, VALUE http)
{
    struct net_http_connection *connection = net_http_connection_get(self);
    VALUE buffered = rb_attr_get(http, iv_socket);
    connection->values = net_http_key_of(key);
    for (VALUE *value = &connection->values.session_class; value <= &connection->values.endpoint; value++)
        RB_OBJ_WRITTEN(self, Qundef, *value);
    RB_OBJ_WRITE(self, &connection->key, key);
    RB_OBJ_WRITE(self, &connection->io, rb_attr_get(buffered, iv_io));
    connection->named_at = net_http_clock_now();
    connection->forks = forks_seen();
    connection->state = RTEST(rb_attr_get(http, iv_transporting)) ? NET_HTTP_IN_EXCHANGE : NET_HTTP_NEW;
    net_http_connection_set(buffered, self);
    return self;
}

static VALUE key_of(VALUE self)
{
    return net_http_connection_get(self)->key;
}

static VALUE io_of(VALUE self)
{
    return net_http_connection_get(self)->io;
}

static VALUE expires_at(VALUE self)
{
    return DBL2NUM(net_http_connection_get(self)->expires_at);
}

// unanswered?: whether the session that began with this persistent connection has had no answer yet.
static VALUE unanswered_p(VALUE self)
{
    return NIL_P(net_http_connection_get(self)->session) ? Qfalse : Qtrue;
}

// holds_retries?(http): whether this is that session, and the library must not repeat its request.
static VALUE holds_retries_p(VALUE self, VALUE http)
{
    const struct net_http_connection *connection = net_http_connection_get(self);
    return connection->session == http && !NIL_P(connection->retries) ? Qtrue : Qfalse;
}

// ---- its state

void net_http_connection_become(struct net_http_connection *connection, enum net_http_state next)
{
#define MAY(state) 1 << NET_HTTP_##state
    static const uint8_t following[NET_HTTP_STATES] = {
        [NET_HTTP_NEW] = MAY(IN_EXCHANGE),
        [NET_HTTP_IN_EXCHANGE] = MAY(IN_EXCHANGE) | MAY(BEGUN) | MAY(REUSABLE) | MAY(UNCERTAIN) | MAY(PINNED),
        [NET_HTTP_BEGUN] = MAY(IN_EXCHANGE) | MAY(REUSABLE) | MAY(UNCERTAIN) | MAY(PINNED),
        [NET_HTTP_REUSABLE] = MAY(IN_EXCHANGE) | MAY(IDLE),
        [NET_HTTP_UNCERTAIN] = MAY(IN_EXCHANGE),
        [NET_HTTP_IDLE] = MAY(REUSABLE),
        [NET_HTTP_PINNED] = 0,
    };
#undef MAY
    if (connection->state == NET_HTTP_PINNED) return;
    HEDDLE_ASSERT(following[connection->state] & (1 << next));
    (void)following;
    connection->state = next;
}

bool net_http_connection_exchanges(const struct net_http_connection *connection)
{
    return connection->state == NET_HTTP_IN_EXCHANGE || connection->state == NET_HTTP_BEGUN;
}

bool net_http_connection_expired(const struct net_http_connection *connection, double now)
{
    return !(connection->expires_at > now); // NAN is never more
}

// ---- where it is

VALUE net_http_connection_at(VALUE buffered)
{
    return rb_attr_get(buffered, iv_connection);
}

struct net_http_connection *net_http_connection_of(VALUE buffered)
{
    VALUE connection = net_http_connection_at(buffered);
    return NIL_P(connection) ? NULL : net_http_connection_get(connection);
}

void net_http_connection_set(VALUE buffered, VALUE connection)
{
    rb_ivar_set(buffered, iv_connection, connection);
}

// KeepAlive.connection(buffered)
static VALUE connection_at(VALUE self, VALUE buffered)
{
    (void)self;
    return net_http_connection_at(buffered);
}

// ---- its socket

VALUE net_http_look(VALUE io)
{
    VALUE socket = RB_TYPE_P(io, T_FILE) ? io : rb_funcall(io, id_to_io, 0);
    int descriptor = RB_TYPE_P(socket, T_FILE) ? shim_open_descriptor(socket) : -1;
    if (descriptor < 0 || rb_io_read_pending(RFILE(socket)->fptr)) return Qfalse;
    if (socket != io) {
        VALUE ahead = rb_attr_get(io, iv_rbuffer);
        if (rb_funcall(io, id_pending, 0) != INT2FIX(0)) return Qfalse;
        if (!NIL_P(ahead) && !(RB_TYPE_P(ahead, T_STRING) && RSTRING_LEN(ahead) == 0)) return Qfalse;
    }
    char byte;
    ssize_t count;
    do {
        count = recv(descriptor, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    } while (count < 0 && errno == EINTR);
    RB_GC_GUARD(socket);
    if (count > 0 && socket != io) return Qnil;
    return count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? Qtrue : Qfalse;
}

bool net_http_connection_quiet(VALUE self)
{
    VALUE io = net_http_connection_get(self)->io, quiet = net_http_look(io);
    if (NIL_P(quiet) && RTEST(rb_funcall(self, id_only_tickets_p, 0))) quiet = net_http_look(io);
    return quiet == Qtrue;
}

void net_http_connection_close(VALUE self)
{
    rb_funcall(self, id_close, 0);
}

void net_http_connection_define(VALUE keep_alive)
{
    net_http_clock_define();
    VALUE klass = rb_define_class_under(keep_alive, "Connection", rb_cObject);
    rb_define_alloc_func(klass, connection_allocate);
    rb_define_method(klass, "initialize", connection_initialize, 2);
    rb_define_method(klass, "key", key_of, 0);
    rb_define_method(klass, "io", io_of, 0);
    rb_define_method(klass, "expires_at", expires_at, 0);
    rb_define_method(klass, "unanswered?", unanswered_p, 0);
    rb_define_method(klass, "holds_retries?", holds_retries_p, 1);
    rb_define_singleton_method(keep_alive, "connection", connection_at, 1);
}
