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
#include "net_http/net_http_names.h"

static VALUE connection_class; // KeepAlive::Connection

// A connection has its key's values at hand; sessions of TLS are fewer.
static struct net_http_key key_of_entry(VALUE entry)
{
    if (CLASS_OF(entry) == connection_class) return net_http_connection_get(entry)->values;
    return net_http_key_of(rb_attr_get(entry, iv_key));
}

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
        if (net_http_key_eql(&own, key)) return entry;
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
    VALUE klass = rb_define_class_under(keep_alive, "Places", rb_cObject);
    rb_define_alloc_func(klass, places_allocate);
    rb_define_method(klass, "find", places_find, 1);
    rb_define_method(klass, "add", places_add, 3);
    rb_define_method(klass, "delete", places_delete, 1);
    rb_define_method(klass, "clear", places_clear, 0);
    rb_define_method(klass, "to_a", places_to_a, 0);
    rb_define_method(klass, "size", places_size, 0);
}
