// The usual end of an exchange on a connection that may be kept: what lib/heddle/net_http/keep_alive/exchange.rb would
// decide by some forty calls, for requests and responses whose classes are as shipped.
#include "net_http/net_http_kept.h"
#include "net_http/net_http_methods.h"

static ID iv_header, iv_method, iv_response_has_body, iv_body, iv_body_data, iv_body_stream, iv_code, iv_http_version,
    iv_last_communicated, iv_socket, id_body_permitted_p;

// The fields of a request or a response on which the end of an exchange depends, in the order of `names`. nil: absent.
struct fields {
    VALUE authorization, proxy_authorization, www_authenticate, proxy_authenticate, upgrade, expect, keep_alive,
        transfer_encoding, content_length;
};

static int pick(VALUE name, VALUE values, VALUE fields)
{
    static const char *const names[] = {
        "authorization", "proxy-authorization", "www-authenticate",  "proxy-authenticate", "upgrade",
        "expect",        "keep-alive",          "transfer-encoding", "content-length"};
    if (!RB_TYPE_P(name, T_STRING)) return ST_CONTINUE;
    size_t length = (size_t)RSTRING_LEN(name);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strlen(names[i]) != length || memcmp(names[i], RSTRING_PTR(name), length) != 0) continue;
        ((VALUE *)fields)[i] = values;
        break;
    }
    return ST_CONTINUE;
}

// One pass over a few fields takes half the time of looking up six of them.
static struct fields fields_of(VALUE header)
{
    struct fields fields = {Qnil, Qnil, Qnil, Qnil, Qnil, Qnil, Qnil, Qnil, Qnil};
    rb_hash_foreach(header, pick, (VALUE)&fields);
    return fields;
}

static bool equal(VALUE string, const char *text)
{
    size_t length = strlen(text);
    return RB_TYPE_P(string, T_STRING) && (size_t)RSTRING_LEN(string) == length &&
           memcmp(RSTRING_PTR(string), text, length) == 0;
}

bool net_http_exchange_idempotent(VALUE request) // RFC 9110, 9.2.2; the same as Net::HTTP's
{
    static const char *const methods[] = {"GET", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE"};
    VALUE method = rb_attr_get(request, iv_method);
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        if (equal(method, methods[i])) return true;
    }
    return false;
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

static bool received_whole(VALUE http, VALUE response)
{
    VALUE header = rb_attr_get(response, iv_header), code = rb_attr_get(response, iv_code);
    if (!net_http_kept_whole(http, response)) return false;
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
    if (!sent_whole(request) || !received_whole(http, response)) return Qfalse;
    net_http_kept_rest(rb_attr_get(http, iv_socket), RFLOAT_VALUE(ended) + net_http_kept_idle);
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
    iv_socket = rb_intern("@socket");
    id_body_permitted_p = rb_intern("body_permitted?");
    rb_define_singleton_method(library_class, "settled?", settled_p, 3);
}
