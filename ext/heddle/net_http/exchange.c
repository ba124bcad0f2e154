// Requests on a connection that may be kept: their beginning, the beginning of their answer, and their end.
#include "net_http/connection.h"
#include "net_http/keep_alive.h"
#include "net_http/library.h"
#include "wire/http/reuse.h"

static VALUE connection_field;

// ---- the beginning

// By the library's own list: since net-http 0.10, QUERY is in it.
static bool idempotent(const struct net_http_library *library, VALUE request)
{
    VALUE method = rb_attr_get(request, iv_method);
    return RB_TYPE_P(method, T_STRING) && RTEST(rb_ary_includes(library->idempotent_methods, method));
}

// A request without a session carries a "close" of the library's own, which is not the program's wish. It comes back at
// the end of the exchange.
static void drop_implied_close(VALUE self, VALUE request)
{
    VALUE implied = rb_attr_get(request, iv_implied), header = rb_attr_get(request, iv_header);
    if (NIL_P(implied) || !RB_TYPE_P(header, T_HASH) || rb_hash_lookup(header, connection_field) != implied) return;
    RB_OBJ_WRITE(self, &net_http_connection_get(self)->disguised, request);
    rb_hash_aset(header, connection_field, rb_ary_new_from_args(1, rb_str_new_lit("keep-alive")));
}

// The first request on a persistent connection. The library need not look again whether the server has closed it;
// @last_communicated would be false after an unfinished request. Until an answer begins, the library gets no retry of
// its own for a request that KeepAlive::Exchange makes again.
static void begin_first(VALUE http, VALUE self, VALUE request)
{
    struct net_http_connection *connection = net_http_connection_get(self);
    const struct net_http_library *library = net_http_library_of_http(http);
    if (RTEST(rb_attr_get(http, iv_last_communicated))) rb_ivar_set(http, iv_last_communicated, Qnil);
    if (!library || !idempotent(library, request)) return;
    RB_OBJ_WRITE(self, &connection->retries, rb_attr_get(http, iv_max_retries));
    RB_OBJ_WRITE(self, &connection->session, http);
    rb_ivar_set(http, iv_max_retries, INT2FIX(0));
    RB_GC_GUARD(self);
}

// From here until the exchange has settled, no other session may have the connection. If the exchange before has not
// settled, or if bytes are there that answer nothing, none may ever have it: the library takes those bytes for the
// answer to this request, and a later session would get this request's answer. Bytes on a new connection may be TLS
// tickets, at the end of the handshake. Bytes on one that another session has left belong to that session: the
// connection is closed, and the library connects again.
void net_http_exchange_begin(VALUE http, VALUE self, VALUE buffered, VALUE request)
{
    struct net_http_connection *connection = net_http_connection_get(self);
    enum net_http_state before = connection->state;
    bool unsettled = net_http_connection_exchanges(connection), first = !NIL_P(connection->session);
    net_http_connection_become(connection, NET_HTTP_IN_EXCHANGE);
    VALUE quiet = net_http_look(connection->io);
    if (first && quiet != Qtrue && !net_http_connection_quiet(self)) net_http_connection_close(self);
    bool clear = quiet == Qtrue || first || (NIL_P(quiet) && before == NET_HTTP_NEW);
    if (unsettled || !clear || net_http_keep_alive_unread(buffered)) {
        net_http_connection_become(connection, NET_HTTP_PINNED);
    } else if (quiet == Qtrue) {
        net_http_connection_become(connection, NET_HTTP_BEGUN);
    }
    drop_implied_close(self, request);
    if (first) begin_first(http, self, request);
    RB_GC_GUARD(self);
}

bool net_http_exchange_looked(VALUE buffered)
{
    struct net_http_connection *connection = net_http_connection_of(buffered);
    bool looked = connection && connection->state == NET_HTTP_BEGUN;
    if (looked) net_http_connection_become(connection, NET_HTTP_IN_EXCHANGE);
    return looked;
}

// ---- the middle

// Gives a session its retries back, unless an answer has done so.
static void give_retries_back(struct net_http_connection *connection)
{
    VALUE http = connection->session, retries = connection->retries;
    connection->session = connection->retries = Qnil;
    if (!NIL_P(retries)) rb_ivar_set(http, iv_max_retries, retries);
}

void net_http_exchange_answered(VALUE buffered)
{
    struct net_http_connection *connection = net_http_connection_of(buffered);
    if (connection) give_retries_back(connection);
}

// KeepAlive.answered(buffered): the same for the library's own code.
static VALUE exchange_answered(VALUE self, VALUE buffered)
{
    (void)self;
    net_http_exchange_answered(buffered);
    return Qnil;
}

// Noted in the connection: a program may dump its responses.
void net_http_exchange_read(VALUE buffered, VALUE response)
{
    VALUE connection = net_http_keeping ? net_http_connection_at(buffered) : Qnil;
    if (!NIL_P(connection)) RB_OBJ_WRITE(connection, &net_http_connection_get(connection)->response, response);
}

void net_http_exchange_ended(VALUE self)
{
    struct net_http_connection *connection = net_http_connection_get(self);
    VALUE request = connection->disguised;
    connection->disguised = Qnil;
    if (!NIL_P(connection->retries)) give_retries_back(connection);
    if (!NIL_P(request))
        rb_hash_aset(rb_attr_get(request, iv_header), connection_field, rb_attr_get(request, iv_implied));
}

// ---- the end

static inline struct wire_http_span span_of(VALUE string)
{
    if (!RB_TYPE_P(string, T_STRING)) return (struct wire_http_span){NULL, 0};
    return (struct wire_http_span){(const uint8_t *)RSTRING_PTR(string), (size_t)RSTRING_LEN(string)};
}

struct collected {
    struct wire_http_facts *facts;
    bool text; // false: a program has put something else there by itself
};

static int exchange_collect(VALUE name, VALUE values, VALUE argument)
{
    struct collected *collected = (struct collected *)argument;
    struct wire_http_span field = span_of(name);
    if (!wire_http_is_fact(field.length)) return ST_CONTINUE;
    collected->text = RB_TYPE_P(values, T_ARRAY) && RARRAY_LEN(values) > 0;
    for (long i = 0; collected->text && i < RARRAY_LEN(values); i++) {
        struct wire_http_span value = span_of(RARRAY_AREF(values, i));
        collected->text = value.at != NULL;
        wire_http_facts_add(collected->facts, field, value);
    }
    return collected->text ? ST_CONTINUE : ST_STOP;
}

static bool facts_of(VALUE message, struct wire_http_facts *facts)
{
    VALUE header = rb_attr_get(message, iv_header);
    struct collected collected = {.facts = facts, .text = RB_TYPE_P(header, T_HASH)};
    if (collected.text) rb_hash_foreach(header, exchange_collect, (VALUE)&collected);
    return collected.text;
}

static enum wire_http_sent_body body_of(VALUE request)
{
    if (RTEST(rb_attr_get(request, iv_body)) || RTEST(rb_attr_get(request, iv_body_data))) return HTTP_SENT_COUNTED;
    return RTEST(rb_attr_get(request, iv_body_stream)) ? HTTP_SENT_STREAM : HTTP_SENT_NONE;
}

static struct net_http_connection *connection_of(VALUE http)
{
    VALUE socket = rb_attr_get(http, iv_socket);
    return NIL_P(socket) ? NULL : net_http_connection_of(socket);
}

// KeepAlive.settle(http, request, response, sent): decides whether the connection may be kept after an exchange. sent:
// the bytes of the request's stream, or nil. The library may have connected again meanwhile, or closed the connection.
static VALUE exchange_settle(VALUE self, VALUE http, VALUE request, VALUE response, VALUE sent)
{
    (void)self;
    VALUE ended = rb_attr_get(http, iv_last_communicated);
    if (!RTEST(ended) || SPECIAL_CONST_P(response)) return Qnil;
    struct wire_http_exchange exchange = {
        .body = body_of(request),
        .streamed = FIXNUM_P(sent) && FIX2LONG(sent) >= 0 ? (uint64_t)FIX2LONG(sent) : UINT64_MAX,
        .reads_bodies = RTEST(rb_attr_get(request, iv_response_has_body)),
        .code_permits_body = RTEST(rb_funcall(CLASS_OF(response), id_body_permitted_p, 0)),
    };
    struct net_http_connection *connection = connection_of(http);
    if (!connection || !net_http_connection_exchanges(connection)) return Qnil;
    exchange.read_to_the_end = connection->response == response;
    exchange.method = span_of(rb_attr_get(request, iv_method));
    exchange.code = span_of(rb_attr_get(response, iv_code));
    exchange.version = span_of(rb_attr_get(response, iv_http_version));
    bool known = facts_of(request, &exchange.sent) && facts_of(response, &exchange.received);
    static const enum net_http_state states[] = {
        [HTTP_PINNED] = NET_HTTP_PINNED, [HTTP_UNCERTAIN] = NET_HTTP_UNCERTAIN, [HTTP_REUSABLE] = NET_HTTP_REUSABLE};
    net_http_connection_become(connection, states[known ? wire_http_reuse(&exchange) : HTTP_PINNED]);
    connection->expires_at = NUM2DBL(ended) + wire_http_idle_seconds(&exchange.received, net_http_keep_alive_idle);
    connection->response = Qnil;
    return Qnil;
}

void net_http_exchange_define(VALUE keep_alive)
{
    connection_field = net_http_constant("connection");
    rb_define_singleton_method(keep_alive, "answered", exchange_answered, 1);
    rb_define_singleton_method(keep_alive, "settle", exchange_settle, 4);
}
