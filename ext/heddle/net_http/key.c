// What makes two connections different: class KeepAlive::Key in C.
#include "net_http/key.h"

#include "net_http/library.h"

static st_index_t key_hash_of(VALUE object)
{
    if (RB_TYPE_P(object, T_STRING)) return rb_str_hash(object);
    return (st_index_t)(FIXNUM_P(object) ? object : rb_hash(object));
}

static VALUE key_endpoint(VALUE host, VALUE port)
{
    st_index_t number = key_hash_of(host) ^ (key_hash_of(port) * 0x9E3779B97F4A7C15);
    return LONG2FIX((long)number >> 2);
}

// The number is computed once: a program's own object may have another hash later.
struct net_http_key net_http_key_of(VALUE key)
{
    VALUE host = rb_attr_get(key, iv_host), port = rb_attr_get(key, iv_port), endpoint = rb_attr_get(key, iv_endpoint);
    if (NIL_P(endpoint)) rb_ivar_set(key, iv_endpoint, endpoint = key_endpoint(host, port));
    return (struct net_http_key){.session_class = rb_attr_get(key, iv_session_class),
                                 .host = host,
                                 .port = port,
                                 .settings = rb_attr_get(key, iv_settings),
                                 .objects = rb_attr_get(key, iv_objects),
                                 .endpoint = endpoint};
}

struct net_http_key net_http_bare_key(VALUE session_class, VALUE host, VALUE port)
{
    return (struct net_http_key){session_class, host, port, Qnil, Qnil, key_endpoint(host, port)};
}

void net_http_key_references(struct net_http_key *key, reference_function *each)
{
    for (VALUE *value = &key->session_class; value <= &key->endpoint; value++)
        each(value);
}

// The same as eql? of two Arrays or nil, without the guard against an Array in itself. The values of a program are
// compared by their own eql?.
static bool key_same(VALUE one, VALUE other, int depth)
{
    if (one == other) return true;
    if (depth == 0 || !RB_TYPE_P(one, T_ARRAY) || !RB_TYPE_P(other, T_ARRAY)) return rb_eql(one, other);
    if (RARRAY_LEN(one) != RARRAY_LEN(other)) return false;
    for (long i = 0; i < RARRAY_LEN(one); i++) {
        if (!key_same(rb_ary_entry(one, i), rb_ary_entry(other, i), depth - 1)) return false;
    }
    return true;
}

// Whether two Arrays have the same objects; or both are nil.
static bool key_identical(VALUE some, VALUE others)
{
    if (some == others) return true;
    if (NIL_P(some) || NIL_P(others) || RARRAY_LEN(some) != RARRAY_LEN(others)) return false;
    for (long i = 0; i < RARRAY_LEN(some); i++) {
        if (rb_ary_entry(some, i) != rb_ary_entry(others, i)) return false;
    }
    return true;
}

bool net_http_key_eql(const struct net_http_key *own, const struct net_http_key *values)
{
    return own->session_class == values->session_class && key_same(own->port, values->port, 0) &&
           key_same(own->host, values->host, 0) && key_identical(own->objects, values->objects) &&
           key_same(own->settings, values->settings, 1);
}

// In the way of the library.
static bool key_has_proxy(const struct net_http_library *library, VALUE http)
{
    if (!net_http_library_does(library, HTTP_UNPATCHED_TRANSPORT)) return RTEST(rb_funcall(http, id_proxy_p, 0));
    if (RTEST(rb_attr_get(http, iv_proxy_from_env))) return RTEST(rb_funcall(http, id_proxy_uri, 0));
    return RTEST(rb_attr_get(http, iv_proxy_address));
}

bool net_http_key_is_bare(VALUE http)
{
    if (RTEST(rb_attr_get(http, iv_use_ssl)) || !NIL_P(rb_attr_get(http, iv_ipaddr))) return false;
    if (RTEST(rb_attr_get(http, iv_local_host)) || RTEST(rb_attr_get(http, iv_local_port))) return false;
    const struct net_http_library *library = net_http_library_of_http(http);
    return library && !key_has_proxy(library, http);
}

// Key.bare?(http)
static VALUE key_bare_p(VALUE self, VALUE http)
{
    (void)self;
    return net_http_key_is_bare(http) ? Qtrue : Qfalse;
}

static VALUE key_variables_of(VALUE object, VALUE names, bool flat)
{
    long count = RARRAY_LEN(names);
    VALUE values = rb_ary_new_capa(count);
    for (long i = 0; i < count; i++) {
        VALUE value = rb_attr_get(object, rb_sym2id(rb_ary_entry(names, i)));
        if (flat && RB_TYPE_P(value, T_ARRAY)) {
            rb_ary_concat(values, value);
        } else {
            rb_ary_push(values, value);
        }
    }
    return values;
}

// Key.variables(object, names): the values of these instance variables.
static VALUE key_variables(VALUE self, VALUE object, VALUE names)
{
    (void)self;
    return key_variables_of(object, names, false);
}

// Key.objects(object, names): the same, with the elements of an Array in place of it.
static VALUE key_objects(VALUE self, VALUE object, VALUE names)
{
    (void)self;
    return key_variables_of(object, names, true);
}

void net_http_key_define(VALUE klass)
{
    rb_define_singleton_method(klass, "bare?", key_bare_p, 1);
    rb_define_singleton_method(klass, "variables", key_variables, 2);
    rb_define_singleton_method(klass, "objects", key_objects, 2);
}
