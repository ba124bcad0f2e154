// The C part of lib/heddle/net_http/keep_alive: the switch, its counts, hidden variables of objects, and what objects
// are. Connections: connection.c; sessions: session.c; exchanges: exchange.c.
#include "net_http/keep_alive.h"

#include "net_http/connection.h"
#include "net_http/library.h"

// ---- the switch

double net_http_keep_alive_idle;
bool net_http_keeping;

// KeepAlive.keeping = seconds that connections may rest, or false
static VALUE set_keeping(VALUE self, VALUE seconds)
{
    (void)self;
    net_http_keeping = RTEST(seconds);
    if (net_http_keeping) net_http_keep_alive_idle = NUM2DBL(seconds);
    return seconds;
}

bool net_http_keep_alive_is_on(VALUE http)
{
    return net_http_keeping && net_http_library_of_http(http);
}

// KeepAlive.keeps?(http)
static VALUE keeps_p(VALUE self, VALUE http)
{
    (void)self;
    return net_http_keep_alive_is_on(http) ? Qtrue : Qfalse;
}

// ---- counts

static uint64_t counts[NET_HTTP_COUNTS];
static const char *const count_names[NET_HTTP_COUNTS] = {"opened", "reused", "stale", "evicted", "resumed"};

void net_http_keep_alive_count(enum net_http_count what, uint64_t number)
{
    counts[what] += number;
}

// KeepAlive.count(name, number): adds the number.
static VALUE keep_alive_count(VALUE self, VALUE name, VALUE number)
{
    (void)self;
    for (int i = 0; i < NET_HTTP_COUNTS; i++) {
        if (rb_sym2id(name) == rb_intern(count_names[i])) counts[i] += NUM2ULL(number);
    }
    return Qnil;
}

// KeepAlive.counts
static VALUE all_counts(VALUE self)
{
    (void)self;
    VALUE all = rb_hash_new();
    for (int i = 0; i < NET_HTTP_COUNTS; i++)
        rb_hash_aset(all, ID2SYM(rb_intern(count_names[i])), ULL2NUM(counts[i]));
    return all;
}

// ---- hidden variables

// Defines KeepAlive.NAME(object) and KeepAlive.set_NAME(object, value).
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
VARIABLE(told)    // of an OpenSSL::X509::Store: what it was told, see keep_alive/trust.rb
VARIABLE(sent)    // of a stream: true once it was the body of a request

// ---- what objects are

bool net_http_keep_alive_unread(VALUE buffered)
{
    VALUE rbuf = rb_attr_get(buffered, iv_rbuf), offset = rb_attr_get(buffered, iv_rbuf_offset);
    if (!RB_TYPE_P(rbuf, T_STRING)) return true; // a program's own
    return RSTRING_LEN(rbuf) > (FIXNUM_P(offset) ? FIX2LONG(offset) : 0);
}

// KeepAlive.unread?(buffered)
static VALUE unread_p(VALUE self, VALUE buffered)
{
    (void)self;
    return net_http_keep_alive_unread(buffered) ? Qtrue : Qfalse;
}

#define DEFINE(name)                                             \
    rb_define_singleton_method(keep_alive, #name, name##_of, 1); \
    rb_define_singleton_method(keep_alive, "set_" #name, set_##name##_of, 2);

void net_http_keep_alive_define(VALUE keep_alive)
{
    DEFINE(choice)
    DEFINE(implied)
    DEFINE(told)
    DEFINE(sent)
    rb_define_singleton_method(keep_alive, "keeping=", set_keeping, 1);
    rb_define_singleton_method(keep_alive, "keeps?", keeps_p, 1);
    rb_define_singleton_method(keep_alive, "count", keep_alive_count, 2);
    rb_define_singleton_method(keep_alive, "counts", all_counts, 0);
    rb_define_singleton_method(keep_alive, "unread?", unread_p, 1);
}
