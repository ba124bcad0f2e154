// Connections or TLS sessions, by what makes them different: lib/heddle/net_http/keep_alive/places.rb and key.rb.
//
// Threads share a Places without a lock: each change is made in one go, without calling a method. Only eql? and hash of
// a program's own values may run other code, before a change.
#include "net_http/net_http_places.h"

#include "net_http/net_http_connection.h"
#include "net_http/net_http_methods.h"

static ID iv_key;                                                                // of a ticket
static ID iv_session_class, iv_host, iv_port, iv_settings, iv_objects, iv_place; // of a Key
static ID iv_use_ssl, iv_ipaddr, iv_local_host, iv_local_port, iv_proxy_from_env, iv_proxy_address;
static ID id_proxy_p, id_proxy_uri, id_compare_by_identity;
static VALUE connection_class; // KeepAlive::Connection

// ---- keys

static st_index_t hash_of(VALUE object)
{
    if (RB_TYPE_P(object, T_STRING)) return rb_str_hash(object);
    return (st_index_t)(FIXNUM_P(object) ? object : rb_hash(object));
}

static VALUE place_of(VALUE host, VALUE port)
{
    st_index_t number = hash_of(host) ^ (hash_of(port) * 0x9E3779B97F4A7C15);
    return LONG2FIX((long)number >> 2);
}

// The place is computed once: a program's own object may have another hash later.
struct net_http_key net_http_key_of(VALUE key)
{
    VALUE host = rb_attr_get(key, iv_host), port = rb_attr_get(key, iv_port), place = rb_attr_get(key, iv_place);
    if (NIL_P(place)) rb_ivar_set(key, iv_place, place = place_of(host, port));
    return (struct net_http_key){.session_class = rb_attr_get(key, iv_session_class),
                                 .host = host,
                                 .port = port,
                                 .settings = rb_attr_get(key, iv_settings),
                                 .objects = rb_attr_get(key, iv_objects),
                                 .place = place};
}

struct net_http_key net_http_bare_key(VALUE session_class, VALUE host, VALUE port)
{
    return (struct net_http_key){session_class, host, port, Qnil, Qnil, place_of(host, port)};
}

// A connection has its key's values at hand; sessions of TLS are fewer.
static struct net_http_key key_of_entry(VALUE entry)
{
    if (CLASS_OF(entry) == connection_class) return net_http_connection_get(entry)->values;
    return net_http_key_of(rb_attr_get(entry, iv_key));
}

// The same as eql? of two Arrays or nil, without the guard against an Array in itself. The values of a program are
// compared by their own eql?.
static bool same(VALUE one, VALUE other, int depth)
{
    if (one == other) return true;
    if (depth == 0 || !RB_TYPE_P(one, T_ARRAY) || !RB_TYPE_P(other, T_ARRAY)) return rb_eql(one, other);
    if (RARRAY_LEN(one) != RARRAY_LEN(other)) return false;
    for (long i = 0; i < RARRAY_LEN(one); i++) {
        if (!same(rb_ary_entry(one, i), rb_ary_entry(other, i), depth - 1)) return false;
    }
    return true;
}

// Whether two Arrays have the same objects; or both are nil.
static bool identical(VALUE some, VALUE others)
{
    if (some == others) return true;
    if (NIL_P(some) || NIL_P(others) || RARRAY_LEN(some) != RARRAY_LEN(others)) return false;
    for (long i = 0; i < RARRAY_LEN(some); i++) {
        if (rb_ary_entry(some, i) != rb_ary_entry(others, i)) return false;
    }
    return true;
}

static bool same_values(const struct net_http_key *own, const struct net_http_key *values)
{
    return own->session_class == values->session_class && same(own->port, values->port, 0) &&
           same(own->host, values->host, 0) && identical(own->objects, values->objects) &&
           same(own->settings, values->settings, 1);
}

// In the way of the library.
static bool has_proxy(const struct net_http_library *library, VALUE http)
{
    if (!library->enabled || !library->transport_pristine) return RTEST(rb_funcall(http, id_proxy_p, 0));
    if (RTEST(rb_attr_get(http, iv_proxy_from_env))) return RTEST(rb_funcall(http, id_proxy_uri, 0));
    return RTEST(rb_attr_get(http, iv_proxy_address));
}

// Library.bare?(http): whether its connection depends on host and port alone: no TLS, no proxy, no address of its own.
static VALUE bare_p(VALUE self, VALUE http)
{
    (void)self;
    if (RTEST(rb_attr_get(http, iv_use_ssl)) || !NIL_P(rb_attr_get(http, iv_ipaddr))) return Qfalse;
    if (RTEST(rb_attr_get(http, iv_local_host)) || RTEST(rb_attr_get(http, iv_local_port))) return Qfalse;
    struct net_http_library *library = net_http_library_of_http(http);
    return library && !has_proxy(library, http) ? Qtrue : Qfalse;
}

// ---- entries

struct places {
    VALUE lists; // a number for host and port => Array of entries, the latest one at the end
    VALUE all;   // all entries, by identity, in the order in which they came
};

static void mark(void *pointer)
{
    struct places *places = pointer;
    rb_gc_mark(places->lists);
    rb_gc_mark(places->all);
}

static size_t memsize(const void *pointer)
{
    (void)pointer;
    return sizeof(struct places);
}

static const rb_data_type_t places_type = {
    .wrap_struct_name = "Heddle::NetHTTP::KeepAlive::Places",
    .function = {.dmark = mark, .dfree = RUBY_DEFAULT_FREE, .dsize = memsize},
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

static VALUE allocate(VALUE klass)
{
    struct places *places;
    VALUE self = TypedData_Make_Struct(klass, struct places, &places_type, places);
    RB_OBJ_WRITE(self, &places->lists, rb_hash_new());
    RB_OBJ_WRITE(self, &places->all, rb_funcall(rb_hash_new(), id_compare_by_identity, 0));
    return self;
}

static struct places *places_of(VALUE self)
{
    return rb_check_typeddata(self, &places_type);
}

static VALUE list_at(VALUE self, VALUE place)
{
    return rb_hash_lookup(places_of(self)->lists, place);
}

VALUE net_http_places_find(VALUE self, const struct net_http_key *key)
{
    VALUE list = list_at(self, key->place);
    if (NIL_P(list)) return Qnil;
    for (long i = RARRAY_LEN(list) - 1; i >= 0; i--) {
        VALUE entry = rb_ary_entry(list, i); // nil if eql? has let another thread take some
        if (NIL_P(entry)) continue;
        struct net_http_key own = key_of_entry(entry);
        if (same_values(&own, key)) return entry;
    }
    return Qnil;
}

static VALUE find(VALUE self, VALUE key)
{
    struct net_http_key values = net_http_key_of(key);
    return net_http_places_find(self, &values);
}

bool net_http_places_delete(VALUE self, VALUE entry)
{
    VALUE place = key_of_entry(entry).place, list = list_at(self, place);
    if (NIL_P(rb_hash_delete(places_of(self)->all, entry))) return false;
    for (long i = NIL_P(list) ? -1 : RARRAY_LEN(list) - 1; i >= 0; i--) {
        if (RARRAY_AREF(list, i) == entry) rb_ary_delete_at(list, i);
    }
    if (!NIL_P(list) && RARRAY_LEN(list) == 0) rb_hash_delete(places_of(self)->lists, place);
    return true;
}

static VALUE delete (VALUE self, VALUE entry)
{
    return net_http_places_delete(self, entry) ? Qtrue : Qfalse;
}

static VALUE take(VALUE self, VALUE key)
{
    struct net_http_key values = net_http_key_of(key);
    for (;;) {
        VALUE entry = net_http_places_find(self, &values);
        if (NIL_P(entry) || net_http_places_delete(self, entry)) return entry;
    }
}

static int push(VALUE entry, VALUE unused, VALUE entries)
{
    (void)unused;
    rb_ary_push(entries, entry);
    return ST_CONTINUE;
}

static VALUE to_a(VALUE self)
{
    VALUE entries = rb_ary_new();
    rb_hash_foreach(places_of(self)->all, push, entries);
    return entries;
}

static VALUE size(VALUE self)
{
    return SIZET2NUM(RHASH_SIZE(places_of(self)->all));
}

static VALUE clear(VALUE self)
{
    VALUE entries = to_a(self);
    rb_hash_clear(places_of(self)->lists);
    rb_hash_clear(places_of(self)->all);
    return entries;
}

static int stop_at(VALUE entry, VALUE unused, VALUE found)
{
    (void)unused;
    *(VALUE *)found = entry;
    return ST_STOP;
}

static VALUE oldest(VALUE self)
{
    VALUE found = Qnil;
    rb_hash_foreach(places_of(self)->all, stop_at, (VALUE)&found);
    return found;
}

bool net_http_places_have_room(VALUE self, const struct net_http_key *key, long most_beside, long most)
{
    VALUE list = list_at(self, key->place);
    return (NIL_P(list) || RARRAY_LEN(list) < most_beside) && (long)RHASH_SIZE(places_of(self)->all) < most;
}

void net_http_places_add(VALUE self, VALUE entry, const struct net_http_key *key)
{
    VALUE lists = places_of(self)->lists, list = rb_hash_lookup(lists, key->place);
    if (NIL_P(list)) rb_hash_aset(lists, key->place, list = rb_ary_new_capa(1));
    rb_hash_aset(places_of(self)->all, entry, Qtrue);
    rb_ary_push(list, entry);
}

static VALUE add(VALUE self, VALUE entry, VALUE most_beside, VALUE most)
{
    struct net_http_key key = key_of_entry(entry);
    VALUE surplus = Qnil;
    net_http_places_add(self, entry, &key);
    VALUE list = list_at(self, key.place);
    if (RARRAY_LEN(list) > NUM2LONG(most_beside)) {
        surplus = rb_ary_entry(list, 0);
    } else if ((long)RHASH_SIZE(places_of(self)->all) > NUM2LONG(most)) {
        surplus = oldest(self);
    }
    if (!NIL_P(surplus)) net_http_places_delete(self, surplus);
    return surplus;
}

// Library.define_places(class, connection_class)
static VALUE define_places(VALUE self, VALUE klass, VALUE connections)
{
    (void)self;
    connection_class = connections;
    rb_gc_register_mark_object(connections);
    rb_define_alloc_func(klass, allocate);
    rb_define_method(klass, "find", find, 1);
    rb_define_method(klass, "take", take, 1);
    rb_define_method(klass, "add", add, 3);
    rb_define_method(klass, "delete", delete, 1);
    rb_define_method(klass, "clear", clear, 0);
    rb_define_method(klass, "to_a", to_a, 0);
    rb_define_method(klass, "size", size, 0);
    return klass;
}

void net_http_places_init(VALUE library_class)
{
    id_compare_by_identity = rb_intern("compare_by_identity");
    iv_key = rb_intern("@key");
    iv_session_class = rb_intern("@session_class");
    iv_host = rb_intern("@host");
    iv_port = rb_intern("@port");
    iv_settings = rb_intern("@settings");
    iv_objects = rb_intern("@objects");
    iv_place = rb_intern("@place");
    iv_use_ssl = rb_intern("@use_ssl");
    iv_ipaddr = rb_intern("@ipaddr");
    iv_local_host = rb_intern("@local_host");
    iv_local_port = rb_intern("@local_port");
    iv_proxy_from_env = rb_intern("@proxy_from_env");
    iv_proxy_address = rb_intern("@proxy_address");
    id_proxy_p = rb_intern("proxy?");
    id_proxy_uri = rb_intern("proxy_uri");
    rb_define_singleton_method(library_class, "bare?", bare_p, 1);
    rb_define_singleton_method(library_class, "define_places", define_places, 2);
}
