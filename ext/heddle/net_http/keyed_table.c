// Connections or TLS sessions, by what makes them different: a KeepAlive::Key. Class KeepAlive::KeyedTable, whose
// entries other than a Connection have a variable `@key`:
//
// - add(entry, most_beside, most): deletes and returns what came first, if there are now too many entries, or too many
//   with the same host and port; otherwise nil
// - find(key): the entry with an equal key that came last; or nil
// - delete(entry): returns whether it was there
// - to_a: all, what came first at the beginning
// - clear: deletes all, and returns them
// - size: how many there are
//
// Threads share a table without a lock: each change is made in one go, without calling a method. Only eql? and hash of
// a program's own values may run other code, before a change.
#include "net_http/keyed_table.h"

#include "net_http/connection.h"
#include "net_http/names.h"
#include "references.h"

static VALUE connection_class; // KeepAlive::Connection

// A connection has its key's values at hand; sessions of TLS are fewer.
static struct net_http_key key_of_entry(VALUE entry)
{
    if (CLASS_OF(entry) == connection_class) return net_http_connection_get(entry)->values;
    return net_http_key_of(rb_attr_get(entry, iv_key));
}

struct keyed_table {
    VALUE lists; // a number for host and port => Array of entries, the latest one at the end
    VALUE all;   // all entries, by identity, in the order in which they came
};

static void keyed_table_references(void *pointer, reference_function *each)
{
    struct keyed_table *table = pointer;
    each(&table->lists);
    each(&table->all);
}

REFERENCES(keyed_table)

static size_t keyed_table_memsize(const void *pointer)
{
    (void)pointer;
    return sizeof(struct keyed_table);
}

static const rb_data_type_t keyed_table_type = {
    .wrap_struct_name = "Heddle::NetHTTP::KeepAlive::KeyedTable",
    .function = {.dmark = keyed_table_mark,
                 .dfree = RUBY_DEFAULT_FREE,
                 .dsize = keyed_table_memsize,
                 .dcompact = keyed_table_compact},
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

static VALUE keyed_table_allocate(VALUE klass)
{
    struct keyed_table *table;
    VALUE self = TypedData_Make_Struct(klass, struct keyed_table, &keyed_table_type, table);
    table->lists = table->all = Qnil;
    RB_OBJ_WRITE(self, &table->lists, rb_hash_new());
    RB_OBJ_WRITE(self, &table->all, rb_funcall(rb_hash_new(), id_compare_by_identity, 0));
    return self;
}

static struct keyed_table *keyed_table_of(VALUE self)
{
    return rb_check_typeddata(self, &keyed_table_type);
}

static VALUE list_at(VALUE self, VALUE endpoint)
{
    return rb_hash_lookup(keyed_table_of(self)->lists, endpoint);
}

static VALUE entry_by(VALUE self, const struct net_http_key *key)
{
    VALUE list = list_at(self, key->endpoint);
    if (NIL_P(list)) return Qnil;
    for (long i = RARRAY_LEN(list) - 1; i >= 0; i--) {
        VALUE entry = rb_ary_entry(list, i); // nil if eql? has let another thread take some
        if (NIL_P(entry)) continue;
        struct net_http_key own = key_of_entry(entry);
        if (net_http_key_eql(&own, key)) return entry;
    }
    return Qnil;
}

/* @api private table.find(key) -> the entry with an equal key that came last, or nil */
static VALUE keyed_table_find(VALUE self, VALUE key)
{
    struct net_http_key values = net_http_key_of(key);
    return entry_by(self, &values);
}

static bool delete_entry(VALUE self, VALUE entry)
{
    VALUE endpoint = key_of_entry(entry).endpoint, list = list_at(self, endpoint);
    if (NIL_P(rb_hash_delete(keyed_table_of(self)->all, entry))) return false;
    for (long i = NIL_P(list) ? -1 : RARRAY_LEN(list) - 1; i >= 0; i--) {
        if (RARRAY_AREF(list, i) == entry) rb_ary_delete_at(list, i);
    }
    if (!NIL_P(list) && RARRAY_LEN(list) == 0) rb_hash_delete(keyed_table_of(self)->lists, endpoint);
    return true;
}

/* @api private table.delete(entry) -> whether it was there */
static VALUE keyed_table_delete(VALUE self, VALUE entry)
{
    return delete_entry(self, entry) ? Qtrue : Qfalse;
}

VALUE net_http_keyed_table_take(VALUE self, const struct net_http_key *key)
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

/* @api private table.to_a -> Array of all entries, in the order of their coming */
static VALUE keyed_table_to_a(VALUE self)
{
    VALUE entries = rb_ary_new();
    rb_hash_foreach(keyed_table_of(self)->all, places_push, entries);
    return entries;
}

/* @api private table.size -> Integer */
static VALUE keyed_table_size(VALUE self)
{
    return SIZET2NUM(RHASH_SIZE(keyed_table_of(self)->all));
}

/* @api private table.clear -> Array of all entries, which are no more there */
static VALUE keyed_table_clear(VALUE self)
{
    VALUE entries = keyed_table_to_a(self);
    rb_hash_clear(keyed_table_of(self)->lists);
    rb_hash_clear(keyed_table_of(self)->all);
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
    rb_hash_foreach(keyed_table_of(self)->all, places_stop_at, (VALUE)&found);
    return found;
}

VALUE net_http_keyed_table_add(VALUE self, VALUE entry, long most_beside, long most)
{
    VALUE endpoint = key_of_entry(entry).endpoint, list = list_at(self, endpoint), surplus = Qnil;
    if (NIL_P(list)) rb_hash_aset(keyed_table_of(self)->lists, endpoint, list = rb_ary_new_capa(1));
    rb_hash_aset(keyed_table_of(self)->all, entry, Qtrue);
    rb_ary_push(list, entry);
    if (RARRAY_LEN(list) > most_beside) {
        surplus = rb_ary_entry(list, 0);
    } else if ((long)RHASH_SIZE(keyed_table_of(self)->all) > most) {
        surplus = places_oldest(self);
    }
    if (!NIL_P(surplus)) delete_entry(self, surplus);
    return surplus;
}

/* @api private table.add(entry, most_beside, most) -> the entry that made room and is no more there, or nil */
static VALUE keyed_table_add(VALUE self, VALUE entry, VALUE most_beside, VALUE most)
{
    return net_http_keyed_table_add(self, entry, NUM2LONG(most_beside), NUM2LONG(most));
}

void net_http_keyed_table_define(VALUE keep_alive)
{
    connection_class = rb_const_get(keep_alive, rb_intern("Connection"));
    rb_gc_register_mark_object(connection_class);
    VALUE klass = rb_define_class_under(keep_alive, "KeyedTable", rb_cObject);
    rb_define_alloc_func(klass, keyed_table_allocate);
    rb_define_method(klass, "find", keyed_table_find, 1);
    rb_define_method(klass, "add", keyed_table_add, 3);
    rb_define_method(klass, "delete", keyed_table_delete, 1);
    rb_define_method(klass, "clear", keyed_table_clear, 0);
    rb_define_method(klass, "to_a", keyed_table_to_a, 0);
    rb_define_method(klass, "size", keyed_table_size, 0);
}
