// The C part of lib/heddle/net_http/keep_alive: the switch, its counts, hidden variables of objects, and what objects
// are. Connections: net_http_connection.c; sessions: net_http_session.c; exchanges: net_http_exchange.c.
#include "net_http/net_http_kept.h"

#include "net_http/net_http_connection.h"
#include "net_http/net_http_methods.h"

// Without @, which hides them: `instance_variables` and `inspect` do not show them. Marshal does.
static ID iv_choice, iv_implied, iv_foreign, iv_told, iv_sent;
static ID iv_rbuf, iv_rbuf_offset;

// ---- the switch

double net_http_kept_idle;
bool net_http_keeping;

// Library.net_http_keeping = seconds that connections may rest, or false
static VALUE set_keeping(VALUE self, VALUE seconds)
{
    (void)self;
    net_http_keeping = RTEST(seconds);
    if (net_http_keeping) net_http_kept_idle = NUM2DBL(seconds);
    return seconds;
}

bool net_http_kept_keeps(VALUE http)
{
    return net_http_keeping && net_http_library_of_http(http);
}

// Library.keeps?(http)
static VALUE keeps_p(VALUE self, VALUE http)
{
    (void)self;
    return net_http_kept_keeps(http) ? Qtrue : Qfalse;
}

// ---- counts

static uint64_t counts[NET_HTTP_COUNTS];
static const char *const count_names[NET_HTTP_COUNTS] = {"opened", "reused", "stale", "evicted", "resumed"};

void net_http_kept_count(enum net_http_count what, uint64_t number)
{
    counts[what] += number;
}

// Library.count(name, number): adds the number.
static VALUE count(VALUE self, VALUE name, VALUE number)
{
    (void)self;
    for (int i = 0; i < NET_HTTP_COUNTS; i++) {
        if (rb_sym2id(name) == rb_intern(count_names[i])) counts[i] += NUM2ULL(number);
    }
    return Qnil;
}

// Library.counts
static VALUE all_counts(VALUE self)
{
    (void)self;
    VALUE all = rb_hash_new();
    for (int i = 0; i < NET_HTTP_COUNTS; i++)
        rb_hash_aset(all, ID2SYM(rb_intern(count_names[i])), ULL2NUM(counts[i]));
    return all;
}

// ---- hidden variables

// Defines Library.NAME(object) and Library.set_NAME(object, value).
#define VARIABLE(name)                                                  \
    static VALUE name##_of(VALUE self, VALUE object)                    \
    {                                                                   \
        (void)self;                                                     \
        return rb_attr_get(object, iv_##name);                          \
    }                                                                   \
    static VALUE set_##name##_of(VALUE self, VALUE object, VALUE value) \
    {                                                                   \
        (void)self;                                                     \
        return rb_ivar_set(object, iv_##name, value);                   \
    }

VARIABLE(choice)  // of a Net::HTTP: its keep_alive, or nil
VARIABLE(implied) // of a request: the value of its field Connection that the library itself set
VARIABLE(foreign) // of a Net::HTTP: true once a program has begun a request by itself
VARIABLE(told)    // of an OpenSSL::X509::Store: what it was told, see keep_alive/trust.rb
VARIABLE(sent)    // of a stream: true once it was the body of a request

bool net_http_kept_exempt(VALUE http)
{
    return rb_attr_get(http, iv_choice) == Qfalse;
}

bool net_http_kept_foreign(VALUE http)
{
    return RTEST(rb_attr_get(http, iv_foreign));
}

void net_http_kept_begun_elsewhere(VALUE http)
{
    if (net_http_keeping) rb_ivar_set(http, iv_foreign, Qtrue);
}

VALUE net_http_kept_implied(VALUE request)
{
    return rb_attr_get(request, iv_implied);
}

// ---- what objects are

bool net_http_kept_unread(VALUE buffered)
{
    VALUE rbuf = rb_attr_get(buffered, iv_rbuf), offset = rb_attr_get(buffered, iv_rbuf_offset);
    if (!RB_TYPE_P(rbuf, T_STRING)) return true; // a program's own
    return RSTRING_LEN(rbuf) > (FIXNUM_P(offset) ? FIX2LONG(offset) : 0);
}

// Library.unread?(buffered)
static VALUE unread_p(VALUE self, VALUE buffered)
{
    (void)self;
    return net_http_kept_unread(buffered) ? Qtrue : Qfalse;
}

// Library.singular?(object): whether an object has methods of its own.
static VALUE singular_p(VALUE self, VALUE object)
{
    (void)self;
    return RB_FL_TEST(CLASS_OF(object), RUBY_FL_SINGLETON) ? Qtrue : Qfalse;
}

// Library.exact?(object, class): whether it is an instance of the class itself, without methods of its own.
static VALUE exact_p(VALUE self, VALUE object, VALUE klass)
{
    (void)self;
    return CLASS_OF(object) == klass ? Qtrue : Qfalse;
}

// Library.library_of(http): its Net::HTTP.
static VALUE library_of(VALUE self, VALUE http)
{
    (void)self;
    struct net_http_library *library = net_http_library_of_http(http);
    return library ? library->http : Qnil;
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

// Library.variables(object, names): the values of these instance variables.
static VALUE variables(VALUE self, VALUE object, VALUE names)
{
    (void)self;
    return variables_of(object, names, false);
}

// Library.objects(object, names): the same, with the elements of an Array in place of it.
static VALUE objects(VALUE self, VALUE object, VALUE names)
{
    (void)self;
    return variables_of(object, names, true);
}

#define DEFINE(name)                                                             \
    rb_define_singleton_method(library_class, #name, name##_of, 1);              \
    rb_define_singleton_method(library_class, "set_" #name, set_##name##_of, 2); \
    iv_##name = rb_intern("heddle_" #name);

void net_http_kept_init(VALUE library_class)
{
    DEFINE(choice)
    DEFINE(implied)
    DEFINE(foreign)
    DEFINE(told)
    DEFINE(sent)
    iv_rbuf = rb_intern("@rbuf");
    iv_rbuf_offset = rb_intern("@rbuf_offset");
    rb_define_singleton_method(library_class, "keeping=", set_keeping, 1);
    rb_define_singleton_method(library_class, "keeps?", keeps_p, 1);
    rb_define_singleton_method(library_class, "count", count, 2);
    rb_define_singleton_method(library_class, "counts", all_counts, 0);
    rb_define_singleton_method(library_class, "unread?", unread_p, 1);
    rb_define_singleton_method(library_class, "singular?", singular_p, 1);
    rb_define_singleton_method(library_class, "exact?", exact_p, 2);
    rb_define_singleton_method(library_class, "library_of", library_of, 1);
    rb_define_singleton_method(library_class, "variables", variables, 2);
    rb_define_singleton_method(library_class, "objects", objects, 2);
    net_http_connection_init(library_class);
}
