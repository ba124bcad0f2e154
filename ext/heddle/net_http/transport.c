// Net::HTTP's checks before each request: whether the connection still exists, and whether the environment names a
// proxy.
#include "net_http/io.h"

#include "net_http/connection.h"
#include "net_http/keep_alive.h"

#include <ruby/encoding.h>
#include <ruby/ractor.h>

static VALUE host, request_method, net_http_proxy, upper_http_proxy, original_environment;

static bool idle_for_too_long(VALUE self, VALUE last)
{
    double limit = NUM2DBL(last) + NUM2DBL(rb_attr_get(self, iv_keep_alive_timeout));
    return limit < net_http_clock_now();
}

static bool transport_ended(struct net_http_io *io)
{
    return !net_http_io_quiet(io) && net_http_io_ended(io) == 1;
}

// @last_communicated is false from the start of a request that the library makes until its end: the library sets it to
// a time when the reply has been read, to nil when it has connected, and treats false as nil. If it is false at the
// start of another request, something that the library does not rescue (Thread#raise, a cancellation, a throw or break
// out of the block) has ended the previous request in the middle, and the next bytes on that connection answer another
// request.
static bool left_unfinished(VALUE last)
{
    return last == Qfalse;
}

static void connect_again(VALUE self, VALUE socket)
{
    rb_funcall(socket, id_close, 0);
    rb_funcall(self, id_connect, 0);
}

// Code that calls begin_transport itself, as net-http-pipeline does, may have several requests in flight.
static VALUE begun(VALUE self)
{
    if (RTEST(rb_attr_get(self, iv_transporting))) rb_ivar_set(self, iv_last_communicated, Qfalse);
    return Qnil;
}

static VALUE begin_by_stock(VALUE self, VALUE request)
{
    net_http_call_original(self, id_begin_transport, 1, &request, RB_NO_KEYWORDS);
    return begun(self);
}

// Whether `#{name}:#{port}` is as it seems, in every version: with a colon in it some put the name in brackets.
static bool plain_name(VALUE name)
{
    return !SPECIAL_CONST_P(name) && CLASS_OF(name) == rb_cString && rb_enc_get_index(name) == rb_utf8_encindex() &&
           rb_enc_str_asciionly_p(name) && !memchr(RSTRING_PTR(name), ':', (size_t)RSTRING_LEN(name));
}

// The same as addr_port.
static VALUE name_and_port_of(const struct net_http_library *library, VALUE self)
{
    VALUE name = rb_attr_get(self, iv_address), port = rb_attr_get(self, iv_port);
    if (!(library->unpatched & HTTP_UNPATCHED_NAMING) || CLASS_OF(self) != library->http || !plain_name(name) ||
        !FIXNUM_P(port))
        return rb_funcall(self, id_addr_port, 0);
    if (FIX2LONG(port) == (RTEST(rb_attr_get(self, iv_use_ssl)) ? 443 : 80)) return name;
    char text[32];
    int length = snprintf(text, sizeof text, ":%ld", FIX2LONG(port));
    return rb_str_cat(rb_str_dup(name), text, length);
}

// Adds the field Host if it is missing.
static void supply_host(const struct net_http_library *library, VALUE self, VALUE request)
{
    VALUE header = rb_attr_get(request, iv_header);
    if (RB_TYPE_P(header, T_HASH) && !NIL_P(rb_hash_lookup(header, host))) return;
    VALUE name_and_port = name_and_port_of(library, self);
    if (RB_TYPE_P(header, T_HASH) && library->unpatched & HTTP_UNPATCHED_REQUEST &&
        net_http_library_knows_request(library, request) && net_http_library_takes_fields(library) &&
        !SPECIAL_CONST_P(name_and_port) && CLASS_OF(name_and_port) == rb_cString &&
        RSTRING_LEN(name_and_port) <= HTTP_VALUE &&
        !memchr(RSTRING_PTR(name_and_port), '\r', (size_t)RSTRING_LEN(name_and_port)) &&
        !memchr(RSTRING_PTR(name_and_port), '\n', (size_t)RSTRING_LEN(name_and_port))) {
        rb_hash_aset(header, host, rb_ary_new_from_values(1, &name_and_port));
    } else {
        rb_funcall(request, id_aset, 2, host, name_and_port);
    }
}

// begin_transport(request), private. Finds out whether the server has closed the connection without waiting, without
// releasing the GVL and without consuming bytes.
static VALUE begin_transport(VALUE self, VALUE request)
{
    // A program that begins a request by itself may have several requests in flight.
    if (net_http_keeping && !RTEST(rb_attr_get(self, iv_transporting))) rb_ivar_set(self, iv_foreign, Qtrue);
    VALUE socket = rb_attr_get(self, iv_socket);
    bool looked = !NIL_P(socket) && net_http_exchange_looked(socket);
    struct net_http_library *library = net_http_library_of_buffered(CLASS_OF(socket));
    VALUE last = rb_attr_get(self, iv_last_communicated);
    if (!net_http_library_does(library, HTTP_UNPATCHED_TRANSPORT))
        return net_http_call_original(self, id_begin_transport, 1, &request, RB_NO_KEYWORDS);
    if (net_http_io_closed(socket)) return begin_by_stock(self, request);
    struct net_http_io io;
    if (left_unfinished(last)) {
        connect_again(self, socket);
    } else if (RTEST(rb_attr_get(self, iv_close_on_empty_response)) || (RTEST(last) && idle_for_too_long(self, last)) ||
               !net_http_io_open(&io, socket)) {
        return begin_by_stock(self, request);
    } else if (RTEST(last) && !looked && transport_ended(&io)) {
        connect_again(self, socket);
    }
    if (!(library->unpatched & HTTP_UNPATCHED_REQUEST) || RTEST(rb_attr_get(request, iv_uri))) {
        rb_funcall(request, id_update_uri, 3, rb_funcall(self, id_address, 0), rb_funcall(self, id_port, 0),
                   rb_funcall(self, id_use_ssl, 0));
    }
    supply_host(library, self, request);
    return begun(self);
}

// TransportRequest.begun(http, buffered, request): notes that the library itself begins and sends a request. Returns
// whether its connection may be kept.
static VALUE begun_by_library(VALUE self, VALUE http, VALUE buffered, VALUE request)
{
    (void)self;
    VALUE connection = NIL_P(buffered) || !net_http_keep_alive_is_on(http) ? Qnil : net_http_connection_at(buffered);
    rb_ivar_set(http, iv_transporting, NIL_P(connection) ? Qtrue : connection);
    if (NIL_P(connection)) return Qfalse;
    net_http_exchange_begin(http, connection, buffered, request);
    return Qtrue;
}

// TransportRequest.ended(http): ends that.
static VALUE ended_by_library(VALUE self, VALUE http)
{
    (void)self;
    VALUE connection = rb_attr_get(http, iv_transporting); // that with which it began; or true
    if (!SPECIAL_CONST_P(connection)) net_http_exchange_ended(connection);
    return rb_ivar_set(http, iv_transporting, Qfalse);
}

static VALUE variable(VALUE environment, VALUE name)
{
    return rb_funcall(environment, id_aref, 1, name);
}

// Whether ENV and its methods are Ruby's own, and no other Ractor changes a variable meanwhile.
static bool asks_the_system(VALUE environment)
{
    VALUE klass = CLASS_OF(environment);
    return environment == original_environment && rb_method_basic_definition_p(klass, id_aref) &&
           rb_method_basic_definition_p(klass, id_include_p) && rb_funcall(rb_cRactor, id_count, 0) == INT2FIX(1);
}

// In the order and in the way in which URI asks: tests replace ENV or its methods.
static bool may_name_a_proxy(void)
{
    VALUE environment = rb_const_get(rb_cObject, id_env);
    if (asks_the_system(environment)) return getenv("REQUEST_METHOD") || getenv("http_proxy") || getenv("HTTP_PROXY");
    return RTEST(rb_funcall(environment, id_include_p, 1, request_method)) ||
           RTEST(variable(environment, net_http_proxy)) || RTEST(variable(environment, upper_http_proxy));
}

// proxy_uri: without any of the variables that name a proxy there is no proxy.
static VALUE proxy_uri(VALUE self)
{
    VALUE known = rb_attr_get(self, iv_proxy_uri);
    if (RTEST(known)) return known;
    if (known == Qfalse) return Qnil;
    struct net_http_library *library = net_http_library_of_http(self);
    if (!net_http_library_does(library, HTTP_UNPATCHED_TRANSPORT) || may_name_a_proxy()) {
        return net_http_call_original(self, id_original_proxy_uri, 0, NULL, RB_NO_KEYWORDS);
    }
    rb_ivar_set(self, iv_proxy_uri, Qfalse);
    return Qnil;
}

void net_http_transport_define(VALUE http)
{
    rb_define_private_method(http, "begin_transport", begin_transport, 1);
    rb_define_method(http, "proxy_uri", proxy_uri, 0);
}

void net_http_transport_request_define(VALUE module)
{
    rb_define_singleton_method(module, "begun", begun_by_library, 3);
    rb_define_singleton_method(module, "ended", ended_by_library, 1);
    original_environment = rb_const_get(rb_cObject, id_env);
    rb_gc_register_mark_object(original_environment);
    request_method = net_http_constant("REQUEST_METHOD");
    net_http_proxy = net_http_constant("http_proxy");
    upper_http_proxy = net_http_constant("HTTP_PROXY");
    VALUE name = rb_enc_interned_str_cstr("host", rb_utf8_encoding());
    rb_gc_register_mark_object(name);
    host = name;
}
