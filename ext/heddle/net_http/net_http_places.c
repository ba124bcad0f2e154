// Connections or TLS sessions, by what makes them different: a KeepAlive::Key. Class KeepAlive::Places, whose entries
// other than a Connection have a variable `@key`:
//
// - add(entry, most_beside, most): deletes and returns what came first, if there are now too many entries, or too many
//   with the same host and port; otherwise nil
// - find(key): the entry with an equal key that came last; or nil
// - delete(entry): returns whether it was there
// - to_a: all, what came first at the beginning
// - clear: deletes all, and returns them
// - size: how many there are
//
// Threads share a Places without a lock: each change is made in one go, without calling a method. Only eql? and hash of
// a program's own values may run other code, before a change.
#include "net_http/net_http_places.h"

#include "net_http/net_http_connection.h"
#include "net_http/net_http_methods.h"

static VALUE connection_class; // KeepAlive::Connection

// ---- keys

static st_index_t hash_of(VALUE object)
{
    if (RB_TYPE_P(object, T_STRING)) return rb_str_hash(object);
    return (st_index_t)(FIXNUM_P(object) ? object : rb_hash(object));
}

static VALUE key_place(VALUE host, VALUE port)
{
    st_index_t number = hash_of(host) ^ (hash_of(port) * 0x9E3779B97F4A7C15);
    return LONG2FIX((long)number >> 2);
}

// The place is computed once: a program's own object may have another hash later.
struct net_http_key net_http_key_of(VALUE key)
{
    VALUE host = rb_attr_get(key, iv_host), port = rb_attr_get(key, iv_port), place = rb_attr_get(key, iv_place);
    if (NIL_P(place)) rb_ivar_set(key, iv_place, place = key_place(host, port));
    return (struct net_http_key){.session_class = rb_attr_get(key, iv_session_class),
                                 .host = host,
                                 .port = port,
                                 .settings = rb_attr_get(key, iv_settings),
                                 .objects = rb_attr_get(key, iv_objects),
                                 .place = place};
}

struct net_http_key net_http_bare_key(VALUE session_class, VALUE host, VALUE port)
{
    return (struct net_http_key){session_class, host, port, Qnil, Qnil, key_place(host, port)};
}

void net_http_key_mark(const struct net_http_key *key)
{
    for (const VALUE *value = &key->session_class; value <= &key->place; value++)
        rb_gc_mark_movable(*value);
}

void net_http_key_compact(struct net_http_key *key)
{
    for (VALUE *value = &key->session_class; value <= &key->place; value++)
        *value = rb_gc_location(*value);
}

// A connection has its key's values at hand; sessions of TLS are fewer.
static struct net_http_key key_of_entry(VALUE entry)
{
    if (CLASS_OF(entry) == connection_class) return net_http_connection_get(entry)->values;
    return net_http_key_of(rb_attr_get(entry, iv_key));
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

static bool same_values(const struct net_http_key *own, const struct net_http_key *values)
{
    return own->session_class == values->session_class && key_same(own->port, values->port, 0) &&
           key_same(own->host, values->host, 0) && key_identical(own->objects, values->objects) &&
           key_same(own->settings, values->settings, 1);
}

// In the way of the library.
static bool has_proxy(const struct net_http_library *library, VALUE http)
{
    if (!library->enabled || !library->transport_pristine) return RTEST(rb_funcall(http, id_proxy_p, 0));
    if (RTEST(rb_attr_get(http, iv_proxy_from_env))) return RTEST(rb_funcall(http, id_proxy_uri, 0));
    return RTEST(rb_attr_get(http, iv_proxy_address));
}

bool net_http_key_is_bare(VALUE http)
{
    if (RTEST(rb_attr_get(http, iv_use_ssl)) || !NIL_P(rb_attr_get(http, iv_ipaddr))) return false;
    if (RTEST(rb_attr_get(http, iv_local_host)) || RTEST(rb_attr_get(http, iv_local_port))) return false;
    const struct net_http_library *library = net_http_library_of_http(http);
    return library && !has_proxy(library, http);
}

// Key.bare?(http)
static VALUE bare_p(VALUE self, VALUE http)
{
    (void)self;
    return net_http_key_is_bare(http) ? Qtrue : Qfalse;
}

static VALUE variables_of(VALUE object, VALUE names, bool flat)
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
static VALUE variables(VALUE self, VALUE object, VALUE names)
{
    (void)self;
    return variables_of(object, names, false);
}

// Key.objects(object, names): the same, with the elements of an Array in place of it.
static VALUE objects(VALUE self, VALUE object, VALUE names)
{
    (void)self;
    return variables_of(object, names, true);
}

// ---- entries

struct places {
    VALUE lists; // a number for host and port => Array of entries, the latest one at the end
    VALUE all;   // all entries, by identity, in the order in which they came
};

static void places_mark(void *pointer)
{
    struct places *places = pointer;
    rb_gc_mark_movable(places->lists);
    rb_gc_mark_movable(places->all);
}

static void places_compact(void *pointer)
{
    struct places *places = pointer;
    places->lists = rb_gc_location(places->lists);
    places->all = rb_gc_location(places->all);
}

static size_t places_memsize(const void *pointer)
{
    (void)pointer;
    return sizeof(struct places);
}

static const rb_data_type_t places_type = {
    .wrap_struct_name = "Heddle::NetHTTP::KeepAlive::Places",
    .function = {.dmark = places_mark, .dfree = RUBY_DEFAULT_FREE, .dsize = places_memsize, .dcompact = places_compact},
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

static VALUE places_allocate(VALUE klass)
{
    struct places *places;
    VALUE self = TypedData_Make_Struct(klass, struct places, &places_type, places);
    places->lists = places->all = Qnil;
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

static VALUE entry_by(VALUE self, const struct net_http_key *key)
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

/* @api private places.find(key) -> the entry with an equal key that came last, or nil */
static VALUE places_find(VALUE self, VALUE key)
{
    struct net_http_key values = net_http_key_of(key);
    return entry_by(self, &values);
}

static bool delete_entry(VALUE self, VALUE entry)
{
    VALUE place = key_of_entry(entry).place, list = list_at(self, place);
    if (NIL_P(rb_hash_delete(places_of(self)->all, entry))) return false;
    for (long i = NIL_P(list) ? -1 : RARRAY_LEN(list) - 1; i >= 0; i--) {
        if (RARRAY_AREF(list, i) == entry) rb_ary_delete_at(list, i);
    }
    if (!NIL_P(list) && RARRAY_LEN(list) == 0) rb_hash_delete(places_of(self)->lists, place);
    return true;
}

/* @api private places.delete(entry) -> whether it was there */
static VALUE places_delete(VALUE self, VALUE entry)
{
    return delete_entry(self, entry) ? Qtrue : Qfalse;
}

VALUE net_http_places_take(VALUE self, const struct net_http_key *key)
{
    for (;;) {
        VALUE entry = entry_by(self, key);
        if (NIL_P(entry) || delete_entry(self, entry)) return entry;
    }
}

static int places_push(VALUE entry, VALUE unused, VALUE entries)
{
    (void)unused;
    rb_ary_push(entries, entry);
    return ST_CONTINUE;
}

/* @api private places.to_a -> Array of all entries, in the order of their coming */
static VALUE places_to_a(VALUE self)
{
    VALUE entries = rb_ary_new();
    rb_hash_foreach(places_of(self)->all, places_push, entries);
    return entries;
}

/* @api private places.size -> Integer */
static VALUE places_size(VALUE self)
{
    return SIZET2NUM(RHASH_SIZE(places_of(self)->all));
}

/* @api private places.clear -> Array of all entries, which are no more there */
static VALUE places_clear(VALUE self)
{
    VALUE entries = places_to_a(self);
    rb_hash_clear(places_of(self)->lists);
    rb_hash_clear(places_of(self)->all);
    return entries;
}

static int places_stop_at(VALUE entry, VALUE unused, VALUE found)
{
    (void)unused;
    *(VALUE *)found = entry;
    return ST_STOP;
}

static VALUE places_oldest(VALUE self)
{
    VALUE found = Qnil;
    rb_hash_foreach(places_of(self)->all, places_stop_at, (VALUE)&found);
    return found;
}

VALUE net_http_places_add(VALUE self, VALUE entry, long most_beside, long most)
{
    VALUE place = key_of_entry(entry).place, list = list_at(self, place), surplus = Qnil;
    if (NIL_P(list)) rb_hash_aset(places_of(self)->lists, place, list = rb_ary_new_capa(1));
    rb_hash_aset(places_of(self)->all, entry, Qtrue);
    rb_ary_push(list, entry);
    if (RARRAY_LEN(list) > most_beside) {
        surplus = rb_ary_entry(list, 0);
    } else if ((long)RHASH_SIZE(places_of(self)->all) > most) {
        surplus = places_oldest(self);
    }
    if (!NIL_P(surplus)) delete_entry(self, surplus);
    return surplus;
}

/* @api private places.add(entry, most_beside, most) -> the entry that made room and is no more there, or nil */
static VALUE places_add(VALUE self, VALUE entry, VALUE most_beside, VALUE most)
{
    return net_http_places_add(self, entry, NUM2LONG(most_beside), NUM2LONG(most));
}

void net_http_places_init(VALUE keep_alive)
{
    connection_class = rb_const_get(keep_alive, rb_intern("Connection"));
    rb_gc_register_mark_object(connection_class);
    VALUE key_class = rb_define_class_under(keep_alive, "Key", rb_cObject);
    rb_define_singleton_method(key_class, "bare?", bare_p, 1);
    rb_define_singleton_method(key_class, "variables", variables, 2);
    rb_define_singleton_method(key_class, "objects", objects, 2);
    VALUE klass = rb_define_class_under(keep_alive, "Places", rb_cObject);
    rb_define_alloc_func(klass, places_allocate);
    rb_define_method(klass, "find", places_find, 1);
    rb_define_method(klass, "add", places_add, 3);
    rb_define_method(klass, "delete", places_delete, 1);
    rb_define_method(klass, "clear", places_clear, 0);
    rb_define_method(klass, "to_a", places_to_a, 0);
    rb_define_method(klass, "size", places_size, 0);
}
