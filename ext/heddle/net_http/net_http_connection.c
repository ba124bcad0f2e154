#include "net_http/net_http_connection.h"

#include "os/fork.h"
#include "shims.h"

#include <errno.h>
#include <math.h>
#include <sys/socket.h>

static ID iv_connection, iv_rbuffer, id_to_io, id_pending;

// ---- the object

static void mark(void *pointer)
{
    struct net_http_connection *connection = pointer;
    rb_gc_mark(connection->key);
    rb_gc_mark(connection->io);
    rb_gc_mark(connection->awaiting);
    rb_gc_mark(connection->retries);
    rb_gc_mark(connection->response);
    rb_gc_mark(connection->disguised);
    for (VALUE *value = &connection->values.session_class; value <= &connection->values.place; value++)
        rb_gc_mark(*value); // pinned: the key itself must not have them moved
}

static size_t memsize(const void *pointer)
{
    (void)pointer;
    return sizeof(struct net_http_connection);
}

static const rb_data_type_t connection_type = {
    .wrap_struct_name = "Heddle::NetHTTP::KeepAlive::Connection",
    .function = {.dmark = mark, .dfree = RUBY_DEFAULT_FREE, .dsize = memsize},
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

static VALUE allocate(VALUE klass)
{
    struct net_http_connection *connection;
    VALUE self = TypedData_Make_Struct(klass, struct net_http_connection, &connection_type, connection);
    connection->key = connection->io = connection->retries = connection->response = connection->disguised = Qnil;
    connection->awaiting = Qfalse;
    connection->expires_at = connection->offsets.boot = connection->offsets.day = NAN;
    connection->bound = true; // until it has a socket
    return self;
}

struct net_http_connection *net_http_connection_get(VALUE connection)
{
    return rb_check_typeddata(connection, &connection_type);
}

// initialize(key, io, now, exchanging). `exchanging`: whether the session has connected in the middle of an exchange.
static VALUE initialize(VALUE self, VALUE key, VALUE io, VALUE now, VALUE exchanging)
{
    struct net_http_connection *connection = net_http_connection_get(self);
    struct net_http_key values = net_http_key_of(key);
    connection->named_at = NUM2DBL(now);
    connection->values = values;
    for (VALUE *value = &values.session_class; value <= &values.place; value++)
        RB_OBJ_WRITTEN(self, Qundef, *value);
    RB_OBJ_WRITE(self, &connection->key, key);
    RB_OBJ_WRITE(self, &connection->io, io);
    connection->forks = forks_seen();
    connection->sound = RTEST(exchanging) ? NET_HTTP_UNSOUND : NET_HTTP_UNTRIED;
    connection->bound = false;
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

static VALUE awaiting_of(VALUE self)
{
    return net_http_connection_get(self)->awaiting;
}

static VALUE expires_at(VALUE self)
{
    return DBL2NUM(net_http_connection_get(self)->expires_at);
}

static VALUE named_at(VALUE self)
{
    return DBL2NUM(net_http_connection_get(self)->named_at);
}

static VALUE set_named_at(VALUE self, VALUE now)
{
    net_http_connection_get(self)->named_at = NUM2DBL(now);
    return now;
}

static VALUE jumped_p(VALUE self, VALUE now)
{
    return net_http_clock_jumped(net_http_connection_get(self)->offsets, NUM2DBL(now)) ? Qtrue : Qfalse;
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

// Library.connection(buffered)
static VALUE connection_at(VALUE self, VALUE buffered)
{
    (void)self;
    return net_http_connection_at(buffered);
}

// Library.set_connection(buffered, connection)
static VALUE set_connection_at(VALUE self, VALUE buffered, VALUE connection)
{
    (void)self;
    net_http_connection_set(buffered, connection);
    return connection;
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

// Library.quiet?(io): see net_http_look.
static VALUE quiet_p(VALUE self, VALUE io)
{
    (void)self;
    return net_http_look(io);
}

// Library.define_connection(class)
static VALUE define_connection(VALUE self, VALUE klass)
{
    (void)self;
    rb_define_alloc_func(klass, allocate);
    rb_define_method(klass, "initialize", initialize, 4);
    rb_define_method(klass, "key", key_of, 0);
    rb_define_method(klass, "io", io_of, 0);
    rb_define_method(klass, "awaiting", awaiting_of, 0);
    rb_define_method(klass, "expires_at", expires_at, 0);
    rb_define_method(klass, "named_at", named_at, 0);
    rb_define_method(klass, "named_at=", set_named_at, 1);
    rb_define_method(klass, "jumped?", jumped_p, 1);
    return klass;
}

void net_http_connection_init(VALUE library_class)
{
    iv_connection = rb_intern("heddle_connection"); // without @, which hides the variable
    iv_rbuffer = rb_intern("@rbuffer");
    id_to_io = rb_intern("to_io");
    id_pending = rb_intern("pending");
    net_http_clock_init();
    rb_define_singleton_method(library_class, "define_connection", define_connection, 1);
    rb_define_singleton_method(library_class, "connection", connection_at, 1);
    rb_define_singleton_method(library_class, "set_connection", set_connection_at, 2);
    rb_define_singleton_method(library_class, "quiet?", quiet_p, 1);
}
