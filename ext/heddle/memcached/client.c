#include "memcached/memcached.h"

#include "references.h"

#include <ruby/encoding.h>
#include <string.h>

enum {
    FLAG_UTF8 = 4 // the flags of dalli 5: 1 serialized, 2 compressed
};

static ID id_wire_key, id_route, id_load, id_allowance, id_recover;

// ---- the object

static void memcached_client_references(void *pointer, reference_function *each)
{
    struct memcached_client *client = pointer;
    each(&client->servers);
    each(&client->codec);
    each(&client->prefix);
}

REFERENCES(memcached_client)

static void memcached_client_release(void *pointer)
{
    struct memcached_client *client = pointer;
    xfree(client->points);
    xfree(client);
}

static size_t memcached_client_memsize(const void *pointer)
{
    const struct memcached_client *client = pointer;
    return sizeof *client + client->point_count * sizeof *client->points;
}

static const rb_data_type_t client_type = {
    .wrap_struct_name = "Heddle::Memcached",
    .function = {.dmark = memcached_client_mark,
                 .dfree = memcached_client_release,
                 .dsize = memcached_client_memsize,
                 .dcompact = memcached_client_compact},
    .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

static VALUE memcached_client_allocate(VALUE klass)
{
    struct memcached_client *client;
    VALUE self = TypedData_Make_Struct(klass, struct memcached_client, &client_type, client);
    client->servers = client->codec = client->prefix = Qnil;
    client->span = DEADLINE_NEVER;
    return self;
}

struct memcached_client *memcached_client_of(VALUE self)
{
    struct memcached_client *client = rb_check_typeddata(self, &client_type);
    if (NIL_P(client->servers)) rb_raise(rb_eArgError, "this client was not initialized");
    return client;
}

// ---- keys

static enum memcached_key memcached_kind_of(VALUE key)
{
    return memcached_key((const uint8_t *)RSTRING_PTR(key), (size_t)RSTRING_LEN(key));
}

static VALUE joined(VALUE prefix, VALUE key)
{
    long first = RSTRING_LEN(prefix), second = RSTRING_LEN(key);
    VALUE whole = rb_str_new(NULL, first + second);
    memcpy(RSTRING_PTR(whole), RSTRING_PTR(prefix), (size_t)first);
    memcpy(RSTRING_PTR(whole) + first, RSTRING_PTR(key), (size_t)second);
    return whole;
}

// Done in C if the key needs only a namespace, which is nearly always.
VALUE memcached_wire_key(const struct memcached_client *client, VALUE self, VALUE key)
{
    VALUE prefix = client->prefix;
    if (!NIL_P(prefix) && RB_TYPE_P(key, T_STRING) && RSTRING_LEN(key) > 0) {
        VALUE whole = RSTRING_LEN(prefix) ? joined(prefix, key) : key;
        if (memcached_kind_of(whole) <= MEMCACHED_KEY_ENCODED) return whole;
    }
    key = rb_funcall(self, id_wire_key, 1, key);
    StringValue(key);
    return key;
}

// ---- the ring

// The last point at or below the key's point, or the last point of all.
static uint32_t server_at(const struct memcached_client *client, uint32_t value)
{
    size_t low = 0, high = client->point_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (client->points[middle].value > value) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return client->points[low ? low - 1 : client->point_count - 1].server;
}

static VALUE server_for(const struct memcached_client *client, VALUE wire_key)
{
    uint32_t index = 0;
    if (client->point_count)
        index =
            server_at(client, memcached_crc32((const uint8_t *)RSTRING_PTR(wire_key), (size_t)RSTRING_LEN(wire_key)));
    return rb_ary_entry(client->servers, index);
}

VALUE memcached_route(const struct memcached_client *client, VALUE self, VALUE wire_key)
{
    VALUE server = server_for(client, wire_key);
    if (memcached_server_of(server)->troubled) server = rb_funcall(self, id_route, 1, wire_key);
    return server;
}

VALUE memcached_recover(VALUE self, VALUE server, VALUE error, VALUE key, bool again)
{
    return rb_funcall(self, id_recover, 4, server, error, key, again ? Qtrue : Qfalse);
}

/* @api private client.server_for(wire_key) -> Server. The key's server by the ring alone. */
static VALUE server_for_method(VALUE self, VALUE wire_key)
{
    return server_for(memcached_client_of(self), StringValue(wire_key));
}

// ---- values

VALUE memcached_decode(const struct memcached_client *client, VALUE bytes, uint32_t flags, VALUE *allowance)
{
    if (flags == 0) return bytes;
    if (flags == FLAG_UTF8) {
        // No other code has seen the String yet, and it is binary.
        RB_ENCODING_SET_INLINED(bytes, rb_utf8_encindex());
        return bytes;
    }
    if (!allowance) return rb_funcall(client->codec, id_load, 2, bytes, UINT2NUM(flags));
    if (!*allowance) *allowance = rb_funcall(client->codec, id_allowance, 0);
    return rb_funcall(client->codec, id_load, 3, bytes, UINT2NUM(flags), *allowance);
}

// ---- setting up

static int by_value(const void *one, const void *other)
{
    const struct ring_point *a = one, *b = other;
    return a->value < b->value ? -1 : a->value > b->value;
}

/*
 * @api private client.set_up(servers, points, codec, timeout, prefix). The points are pairs of a value and a server's
 * index, or empty for a single server. The prefix is a String that precedes each key, or nil if #wire_key must be
 * called.
 */
static VALUE set_up(VALUE self, VALUE servers, VALUE points, VALUE codec, VALUE timeout, VALUE prefix)
{
    struct memcached_client *client = rb_check_typeddata(self, &client_type);
    Check_Type(servers, T_ARRAY);
    Check_Type(points, T_ARRAY);
    long server_count = RARRAY_LEN(servers);
    for (long i = 0; i < server_count; i++)
        memcached_server_of(rb_ary_entry(servers, i));
    int64_t span = deadline_span(timeout);
    long count = RARRAY_LEN(points);
    if (server_count < 1 || (server_count > 1 && count < 1))
        rb_raise(rb_eArgError, "a client needs at least one server");
    if (client->points) rb_raise(rb_eArgError, "this client is already initialized");
    client->points = count ? ALLOC_N(struct ring_point, count) : NULL;
    for (long i = 0; i < count; i++) {
        VALUE pair = rb_ary_entry(points, i);
        Check_Type(pair, T_ARRAY);
        client->points[i].value = NUM2UINT(rb_ary_entry(pair, 0));
        client->points[i].server = NUM2UINT(rb_ary_entry(pair, 1));
        if ((long)client->points[i].server >= server_count)
            rb_raise(rb_eArgError, "a point of the ring names a server that does not exist");
    }
    if (count) qsort(client->points, (size_t)count, sizeof *client->points, by_value);
    client->point_count = (size_t)count;
    RB_OBJ_WRITE(self, &client->codec, codec);
    client->span = span;
    RB_OBJ_WRITE(self, &client->prefix, NIL_P(prefix) ? Qnil : rb_str_new_frozen(StringValue(prefix)));
    RB_OBJ_WRITE(self, &client->servers, rb_ary_freeze(rb_ary_dup(servers)));
    return self;
}

/* @api private client.time_limit = seconds or nil. The time for each operation, from the next one on. */
static VALUE set_time_limit(VALUE self, VALUE seconds)
{
    int64_t span = deadline_span(seconds);
    memcached_client_of(self)->span = span;
    return seconds;
}

/* @api private Heddle::Memcached.key_fits?(key) -> true or false. Returns whether the bytes can be sent as a key. */
static VALUE key_fits_p(VALUE klass, VALUE key)
{
    (void)klass;
    StringValue(key);
    return memcached_kind_of(key) <= MEMCACHED_KEY_ENCODED ? Qtrue : Qfalse;
}

void memcached_client_define(VALUE klass)
{
    id_wire_key = rb_intern("wire_key");
    id_route = rb_intern("route");
    id_load = rb_intern("load");
    id_allowance = rb_intern("allowance");
    id_recover = rb_intern("recover");
    rb_define_alloc_func(klass, memcached_client_allocate);
    rb_undef_method(klass, "initialize_copy");
    rb_define_private_method(klass, "set_up", set_up, 5);
    rb_define_private_method(klass, "server_for", server_for_method, 1);
    rb_define_private_method(klass, "time_limit=", set_time_limit, 1);
    rb_define_singleton_method(klass, "key_fits?", key_fits_p, 1);
}
