// Requests on a connection that may be kept: their beginning, the beginning of their answer, and their end.
#include "net_http/net_http_connection.h"
#include "net_http/net_http_kept.h"
#include "net_http/net_http_methods.h"
#include "wire/wire_http_reuse.h"

static ID iv_header, iv_body, iv_body_data, iv_body_stream, iv_code, iv_http_version, iv_last_communicated,
    iv_max_retries, iv_socket, id_method, id_close, id_quiet_p, id_response_body_permitted_p, id_body_permitted_p;
static VALUE connection_field;

// ---- the beginning

// By the library's own list: since net-http 0.10, QUERY is in it.
static bool idempotent(const struct net_http_library *library, VALUE request)
{
    VALUE method = rb_funcall(request, id_method, 0);
    return RB_TYPE_P(method, T_STRING) && RTEST(rb_ary_includes(library->idempotent_methods, method));
}

// The first request on a kept connection. Bytes that have come since the session began belong to an earlier session:
// closes the connection, and the library connects again. Otherwise the library need not look again whether the server
// has closed it; @last_communicated would be false after an unfinished request. Until an answer begins, the library
// gets no retry of its own for a request that KeepAlive::Exchange makes again.
static void begin_first(VALUE http, VALUE self, VALUE request, VALUE quiet)
{
    struct net_http_connection *connection = net_http_connection_get(self);
    struct net_http_library *library = net_http_library_of_http(http);
    if (quiet != Qtrue && !RTEST(rb_funcall(self, id_quiet_p, 0))) rb_funcall(self, id_close, 0);
    if (RTEST(rb_attr_get(http, iv_last_communicated))) rb_ivar_set(http, iv_last_communicated, Qnil);
    if (!library || !idempotent(library, request)) return;
    RB_OBJ_WRITE(self, &connection->retries, rb_attr_get(http, iv_max_retries));
    RB_OBJ_WRITE(self, &connection->awaiting, http);
    rb_ivar_set(http, iv_max_retries, INT2FIX(0));
    RB_GC_GUARD(self);
}

// From here until the exchange has settled, nobody else may have the connection. Nobody else ever may if the exchange
// before has not settled, or if bytes have come that answer nothing: the library would take those for the answer to
// this request, and a later session would get this answer for its own. Returns what net_http_look tells.
static VALUE begin(struct net_http_connection *connection, VALUE buffered)
{
    VALUE quiet = net_http_look(connection->io);
    bool clear = quiet == Qtrue || (NIL_P(quiet) && connection->sound == NET_HTTP_UNTRIED); // a new one's tickets
    if (connection->awaiting == Qtrue) clear = true; // begin_first closes it otherwise
    if (connection->sound == NET_HTTP_UNSOUND || !clear || net_http_kept_unread(buffered)) connection->bound = true;
    connection->sound = NET_HTTP_UNSOUND;
    connection->looked = quiet == Qtrue;
    return quiet;
}

// A request without a session carries a "close" of the library's own, which is not the program's wish. It comes back at
// the end of the exchange.
static void drop_implied_close(VALUE self, VALUE request)
{
    VALUE implied = net_http_kept_implied(request), header = rb_attr_get(request, iv_header);
    if (NIL_P(implied) || !RB_TYPE_P(header, T_HASH) || rb_hash_lookup(header, connection_field) != implied) return;
    RB_OBJ_WRITE(self, &net_http_connection_get(self)->disguised, request);
    rb_hash_aset(header, connection_field, rb_ary_new_from_args(1, rb_str_new_lit("keep-alive")));
}

void net_http_exchange_begin(VALUE http, VALUE self, VALUE buffered, VALUE request)
{
    VALUE quiet = begin(net_http_connection_get(self), buffered);
    drop_implied_close(self, request);
    if (net_http_connection_get(self)->awaiting == Qtrue) begin_first(http, self, request, quiet);
}

bool net_http_exchange_looked(VALUE buffered)
{
    struct net_http_connection *connection = net_http_connection_of(buffered);
    bool looked = connection && connection->looked;
    if (looked) connection->looked = false;
    return looked;
}

// ---- the middle

// Gives a session its retries back, unless an answer has done so.
static void await_no_more(VALUE self)
{
    struct net_http_connection *connection = net_http_connection_get(self);
    VALUE awaiting = connection->awaiting;
    if (!RTEST(awaiting)) return;
    connection->awaiting = Qfalse;
    if (awaiting != Qtrue) rb_ivar_set(awaiting, iv_max_retries, connection->retries);
}

void net_http_exchange_answered(VALUE buffered)
{
    VALUE connection = net_http_connection_at(buffered);
    if (!NIL_P(connection)) await_no_more(connection);
}

// Library.answered(buffered): the same for the library's own code.
static VALUE answered(VALUE self, VALUE buffered)
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
    if (connection->awaiting != Qtrue) await_no_more(self);
    if (!NIL_P(request))
        rb_hash_aset(rb_attr_get(request, iv_header), connection_field, net_http_kept_implied(request));
}

// ---- the end

static struct wire_http_span span_of(VALUE string)
{
    if (!RB_TYPE_P(string, T_STRING)) return (struct wire_http_span){NULL, 0};
    return (struct wire_http_span){(const uint8_t *)RSTRING_PTR(string), (size_t)RSTRING_LEN(string)};
}

struct collected {
    struct wire_http_facts *facts;
    bool text; // all is text, as far as a program has not put anything else there by itself
};

static int collect(VALUE name, VALUE values, VALUE argument)
{
    struct collected *collected = (struct collected *)argument;
    collected->text = RB_TYPE_P(name, T_STRING) && RB_TYPE_P(values, T_ARRAY) && RARRAY_LEN(values) > 0;
    for (long i = 0; collected->text && i < RARRAY_LEN(values); i++) {
        VALUE value = RARRAY_AREF(values, i);
        collected->text = RB_TYPE_P(value, T_STRING);
        wire_http_facts_add(collected->facts, span_of(name), span_of(value));
    }
    return collected->text ? ST_CONTINUE : ST_STOP;
}

static bool facts_of(VALUE message, struct wire_http_facts *facts)
{
    VALUE header = rb_attr_get(message, iv_header);
    struct collected collected = {.facts = facts, .text = RB_TYPE_P(header, T_HASH)};
    if (collected.text) rb_hash_foreach(header, collect, (VALUE)&collected);
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

// Library.settle(http, request, response, sent): decides whether the connection may be kept after an exchange. `sent`:
// the bytes of the request's stream, or nil. The library may have connected again meanwhile, or closed the connection.
static VALUE settle(VALUE self, VALUE http, VALUE request, VALUE response, VALUE sent)
{
    (void)self;
    VALUE ended = rb_attr_get(http, iv_last_communicated);
    if (!RTEST(ended) || SPECIAL_CONST_P(response)) return Qnil;
    VALUE method = rb_funcall(request, id_method, 0);
    struct wire_http_exchange exchange = {
        .body = body_of(request),
        .streamed = FIXNUM_P(sent) && FIX2LONG(sent) >= 0 ? (uint64_t)FIX2LONG(sent) : UINT64_MAX,
        .reads_bodies = RTEST(rb_funcall(request, id_response_body_permitted_p, 0)),
        .code_permits_body = RTEST(rb_funcall(CLASS_OF(response), id_body_permitted_p, 0)),
    };
    struct net_http_connection *connection = connection_of(http);
    if (!connection) return Qnil;
    exchange.read_to_the_end = connection->response == response;
    exchange.method = span_of(method);
    exchange.code = span_of(rb_attr_get(response, iv_code));
    exchange.version = span_of(rb_attr_get(response, iv_http_version));
    bool known = facts_of(request, &exchange.sent) && facts_of(response, &exchange.received);
    enum wire_http_reuse reuse = known ? wire_http_reuse(&exchange) : HTTP_PINNED;
    RB_GC_GUARD(method);
    connection->response = Qnil;
    if (reuse == HTTP_PINNED) connection->bound = true;
    if (reuse == HTTP_UNCERTAIN) connection->sound = NET_HTTP_UNTRIED;
    if (reuse != HTTP_REUSABLE) return Qnil;
    connection->expires_at = NUM2DBL(ended) + wire_http_idle_seconds(&exchange.received, net_http_kept_idle);
    connection->sound = NET_HTTP_SOUND;
    return Qnil;
}

void net_http_exchange_init(VALUE library_class)
{
    iv_header = rb_intern("@header");
    iv_body = rb_intern("@body");
    iv_body_data = rb_intern("@body_data");
    iv_body_stream = rb_intern("@body_stream");
    iv_code = rb_intern("@code");
    iv_http_version = rb_intern("@http_version");
    iv_last_communicated = rb_intern("@last_communicated");
    iv_max_retries = rb_intern("@max_retries");
    iv_socket = rb_intern("@socket");
    id_method = rb_intern("method");
    id_close = rb_intern("close");
    id_quiet_p = rb_intern("quiet?");
    id_response_body_permitted_p = rb_intern("response_body_permitted?");
    id_body_permitted_p = rb_intern("body_permitted?");
    connection_field = net_http_constant("connection");
    rb_define_singleton_method(library_class, "answered", answered, 1);
    rb_define_singleton_method(library_class, "settle", settle, 4);
}
