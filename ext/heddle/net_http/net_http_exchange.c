// The usual beginning and end of an exchange on a connection that may be kept: what
// lib/heddle/net_http/keep_alive/exchange.rb would decide by some forty calls, for requests and responses whose classes
// are as shipped.
#include "net_http/net_http_connection.h"
#include "net_http/net_http_kept.h"
#include "net_http/net_http_methods.h"

static ID iv_header, iv_method, iv_response_has_body, iv_body, iv_body_data, iv_body_stream, iv_code, iv_http_version,
    iv_last_communicated, iv_max_retries, iv_socket, id_body_permitted_p;

// ---- the beginning

static bool equal(VALUE string, const char *text)
{
    size_t length = strlen(text);
    return RB_TYPE_P(string, T_STRING) && (size_t)RSTRING_LEN(string) == length &&
           memcmp(RSTRING_PTR(string), text, length) == 0;
}

// By the library's own list: since net-http 0.10, QUERY is in it.
static bool idempotent(const struct net_http_library *library, VALUE method)
{
    if (!RB_TYPE_P(method, T_STRING)) return false;
    for (long i = 0; i < RARRAY_LEN(library->idempotent_methods); i++) {
        if (RTEST(rb_str_equal(method, rb_ary_entry(library->idempotent_methods, i)))) return true;
    }
    return false;
}

// Library.idempotent?(http, method): whether a request of this method may be made twice.
static VALUE idempotent_p(VALUE self, VALUE http, VALUE method)
{
    (void)self;
    const struct net_http_library *library = net_http_library_of_http(http);
    return library && idempotent(library, method) ? Qtrue : Qfalse;
}

static void await_answer(VALUE self, VALUE http)
{
    struct net_http_connection *connection = net_http_connection_get(self);
    RB_OBJ_WRITE(self, &connection->retries, rb_attr_get(http, iv_max_retries));
    RB_OBJ_WRITE(self, &connection->awaiting, http);
    rb_ivar_set(http, iv_max_retries, INT2FIX(0));
}

// Library.await(connection, http): from here until an answer begins, the library gets no retry of its own.
static VALUE await(VALUE self, VALUE connection, VALUE http)
{
    (void)self;
    await_answer(connection, http);
    return Qnil;
}

// The library need not look again whether the server has closed the connection. False tells of an unfinished request.
static void trust(VALUE http)
{
    if (RTEST(rb_attr_get(http, iv_last_communicated))) rb_ivar_set(http, iv_last_communicated, Qnil);
}

// Library.trust(http)
static VALUE trust_connection(VALUE self, VALUE http)
{
    (void)self;
    trust(http);
    return Qnil;
}

// From here until the exchange has settled, nobody else may have the connection. Nobody else ever may if the exchange
// before has not settled, or if bytes have come that answer nothing: the library would take those for the answer to
// this request, and a later session would get this answer for its own. Returns what net_http_look tells.
static VALUE begin(struct net_http_connection *connection, VALUE buffered)
{
    VALUE quiet = net_http_look(connection->io);
    bool clear = quiet == Qtrue || (NIL_P(quiet) && connection->sound == NET_HTTP_UNTRIED); // a new one's tickets
    if (connection->awaiting == Qtrue) clear = true; // Exchange closes it otherwise
    if (connection->sound == NET_HTTP_UNSOUND || !clear || net_http_kept_unread(buffered)) connection->bound = true;
    connection->sound = NET_HTTP_UNSOUND;
    connection->looked = quiet == Qtrue;
    return quiet;
}

// As almost all are: there is nothing to note of a stream, the library itself has set no field Connection, and nothing
// has come on a kept connection. If this is a session's first request on a kept connection, await_answer was called.
bool net_http_exchange_begins(VALUE http, VALUE self, VALUE buffered, VALUE request)
{
    struct net_http_connection *connection = net_http_connection_get(self);
    VALUE quiet = begin(connection, buffered);
    if (RTEST(rb_attr_get(request, iv_body_stream)) || RTEST(rb_attr_get(request, iv_body_data)) ||
        net_http_kept_implied(request))
        return false;
    if (connection->awaiting != Qtrue) return true;
    struct net_http_library *library = net_http_library_of_http(http);
    if (quiet != Qtrue || !library || !net_http_library_knows_request(library, request)) return false;
    trust(http);
    if (idempotent(library, rb_attr_get(request, iv_method))) await_answer(self, http);
    RB_GC_GUARD(self);
    return true;
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

void net_http_exchange_ended(VALUE connection)
{
    if (net_http_connection_get(connection)->awaiting != Qtrue) await_no_more(connection);
}

// ---- the end

// The fields of a request or a response on which the end of an exchange depends. nil: absent.
struct fields {
    VALUE authorization, proxy_authorization, www_authenticate, proxy_authenticate, upgrade, expect, keep_alive,
        transfer_encoding, content_length;
};

// No two of the names have the same length.
static int pick(VALUE name, VALUE values, VALUE fields)
{
#define FIELD(text, member) [sizeof text - 1] = { text, offsetof(struct fields, member) }
    static const struct {
        const char *name;
        size_t at;
    } known[] = {FIELD("authorization", authorization),
                 FIELD("proxy-authorization", proxy_authorization),
                 FIELD("www-authenticate", www_authenticate),
                 FIELD("proxy-authenticate", proxy_authenticate),
                 FIELD("upgrade", upgrade),
                 FIELD("expect", expect),
                 FIELD("keep-alive", keep_alive),
                 FIELD("transfer-encoding", transfer_encoding),
                 FIELD("content-length", content_length)};
#undef FIELD
    if (!RB_TYPE_P(name, T_STRING)) return ST_CONTINUE;
    size_t length = (size_t)RSTRING_LEN(name);
    if (length >= sizeof known / sizeof *known || !known[length].name) return ST_CONTINUE;
    if (memcmp(known[length].name, RSTRING_PTR(name), length) == 0)
        *(VALUE *)((char *)fields + known[length].at) = values;
    return ST_CONTINUE;
}

// One pass over a few fields takes half the time of looking up six of them.
static struct fields fields_of(VALUE header)
{
    struct fields fields = {Qnil, Qnil, Qnil, Qnil, Qnil, Qnil, Qnil, Qnil, Qnil};
    rb_hash_foreach(header, pick, (VALUE)&fields);
    return fields;
}

// The value of a field that stands there once; or nil.
static VALUE only_value(VALUE values)
{
    VALUE value = RB_TYPE_P(values, T_ARRAY) && RARRAY_LEN(values) == 1 ? rb_ary_entry(values, 0) : Qnil;
    return RB_TYPE_P(value, T_STRING) ? value : Qnil;
}

static bool digits(VALUE string)
{
    const char *p = RSTRING_PTR(string), *end = RSTRING_END(string);
    if (p == end) return false;
    while (p < end && *p >= '0' && *p <= '9')
        p++;
    return p == end;
}

// Basic and Bearer belong to the request; NTLM and Negotiate, and whatever else begins with an N, may belong to the
// connection.
static bool of_the_request(VALUE values)
{
    if (NIL_P(values)) return true;
    VALUE value = only_value(values);
    if (NIL_P(value) || RSTRING_LEN(value) == 0) return false;
    char first = *RSTRING_PTR(value);
    return (first >= 'A' && first <= 'Z' && first != 'N') || (first >= 'a' && first <= 'z' && first != 'n');
}

static bool sent_whole(VALUE request)
{
    VALUE header = rb_attr_get(request, iv_header), method = rb_attr_get(request, iv_method);
    if (!RB_TYPE_P(header, T_HASH) || !RB_TYPE_P(method, T_STRING) || equal(method, "HEAD") ||
        equal(method, "CONNECT") || !RTEST(rb_attr_get(request, iv_response_has_body)))
        return false;
    struct fields sent = fields_of(header);
    if (!NIL_P(sent.upgrade) || !NIL_P(sent.expect)) return false;
    if (!of_the_request(sent.authorization) || !of_the_request(sent.proxy_authorization)) return false;
    if (RTEST(rb_attr_get(request, iv_body)) || RTEST(rb_attr_get(request, iv_body_data))) return true;
    return NIL_P(rb_attr_get(request, iv_body_stream)) && NIL_P(sent.transfer_encoding) && NIL_P(sent.content_length);
}

static bool received_whole(VALUE response)
{
    VALUE header = rb_attr_get(response, iv_header), code = rb_attr_get(response, iv_code);
    if (!RB_TYPE_P(header, T_HASH) || !RB_TYPE_P(code, T_STRING) || equal(code, "304")) return false;
    struct fields received = fields_of(header);
    if (!NIL_P(received.keep_alive) || !NIL_P(received.www_authenticate) || !NIL_P(received.proxy_authenticate))
        return false;
    if (!NIL_P(received.transfer_encoding)) {
        VALUE coding = only_value(received.transfer_encoding), version = rb_attr_get(response, iv_http_version);
        if (!equal(coding, "chunked") || !NIL_P(received.content_length) || !equal(version, "1.1")) return false;
    } else {
        VALUE length = only_value(received.content_length);
        if (NIL_P(length) || !digits(length)) return false;
    }
    return RTEST(rb_funcall(CLASS_OF(response), id_body_permitted_p, 0));
}

static struct net_http_connection *connection_of(VALUE http)
{
    VALUE socket = rb_attr_get(http, iv_socket);
    return NIL_P(socket) ? NULL : net_http_connection_of(socket);
}

// Library.whole?(http, response): whether the library has read the body of this response, its last one, to its end.
static VALUE whole_p(VALUE self, VALUE http, VALUE response)
{
    (void)self;
    const struct net_http_connection *connection = connection_of(http);
    return connection && connection->response == response ? Qtrue : Qfalse;
}

// Library.settled?(http, request, response): whether nothing remains to be decided. Either the library has closed the
// connection; or request and answer were certainly whole, and the connection may be kept. Otherwise Exchange decides.
static VALUE settled_p(VALUE self, VALUE http, VALUE request, VALUE response)
{
    (void)self;
    VALUE ended = rb_attr_get(http, iv_last_communicated);
    if (!RTEST(ended)) return Qtrue;
    struct net_http_library *library = net_http_library_of_http(http);
    if (!library || !RB_FLOAT_TYPE_P(ended) || SPECIAL_CONST_P(response)) return Qfalse;
    if (!net_http_library_knows_request(library, request)) return Qfalse;
    if (!net_http_library_knows_responses(library, CLASS_OF(response))) return Qfalse;
    if (!sent_whole(request) || !received_whole(response)) return Qfalse;
    struct net_http_connection *connection = connection_of(http);
    if (!connection || connection->response != response) return Qfalse;
    connection->expires_at = RFLOAT_VALUE(ended) + net_http_kept_idle;
    connection->response = Qnil;
    connection->sound = NET_HTTP_SOUND;
    return Qtrue;
}

void net_http_exchange_init(VALUE library_class)
{
    iv_header = rb_intern("@header");
    iv_method = rb_intern("@method");
    iv_response_has_body = rb_intern("@response_has_body");
    iv_body = rb_intern("@body");
    iv_body_data = rb_intern("@body_data");
    iv_body_stream = rb_intern("@body_stream");
    iv_code = rb_intern("@code");
    iv_http_version = rb_intern("@http_version");
    iv_last_communicated = rb_intern("@last_communicated");
    iv_max_retries = rb_intern("@max_retries");
    iv_socket = rb_intern("@socket");
    id_body_permitted_p = rb_intern("body_permitted?");
    rb_define_singleton_method(library_class, "idempotent?", idempotent_p, 2);
    rb_define_singleton_method(library_class, "await", await, 2);
    rb_define_singleton_method(library_class, "trust", trust_connection, 1);
    rb_define_singleton_method(library_class, "answered", answered, 1);
    rb_define_singleton_method(library_class, "whole?", whole_p, 2);
    rb_define_singleton_method(library_class, "settled?", settled_p, 3);
}
