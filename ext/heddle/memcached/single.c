#include "memcached/memcached.h"

static ID id_raw, id_rearm;

static struct exchange prepared(VALUE self, VALUE key, enum memcached_verb verb, unsigned fields)
{
    const struct memcached_client *client = memcached_client_of(self);
    struct exchange exchange = {.self = self, .client = client, .value = Qnil, .again = true};
    exchange.key = memcached_wire_key(client, self, key);
    exchange.request.verb = verb;
    exchange.request.fields = fields;
    return exchange;
}

/*
 * call-seq: cache.get(key, raw: false) -> object or nil
 *
 * Returns the value stored under the key, or nil. raw: the stored bytes, without decoding.
 *
 * Raises Heddle::DeadlineExceeded when the timeout is over, NoServerAvailable, DecodeError.
 */
static VALUE get(int argc, VALUE *argv, VALUE self)
{
    VALUE key, options, raw = Qfalse;
    if (argc == 1) {
        key = argv[0];
    } else {
        rb_scan_args(argc, argv, "1:", &key, &options);
        if (!NIL_P(options)) rb_get_kwargs(options, &id_raw, 0, 1, &raw);
        if (raw == Qundef) raw = Qfalse;
    }
    struct exchange exchange = prepared(self, key, MEMCACHED_GET, MEMCACHED_WANT_VALUE | MEMCACHED_WANT_FLAGS);
    memcached_exchange_run(&exchange);
    RB_GC_GUARD(exchange.key);
    if (NIL_P(exchange.bytes) || memcached_placeholder(&exchange.reply)) return Qnil;
    // The right to recache belongs to a caller of #fetch, not to this read, so it is given back.
    if (memcached_recache_won(&exchange.reply)) rb_funcall(self, id_rearm, 1, key);
    return RTEST(raw) ? exchange.bytes : memcached_decode(exchange.client, exchange.bytes, exchange.reply.flags, NULL);
}

static int32_t seconds(VALUE number)
{
    return NUM2INT(number);
}

static void with_ttl(struct memcached_request *request, VALUE ttl)
{
    if (NIL_P(ttl)) return;
    request->ttl = seconds(ttl);
    request->fields |= MEMCACHED_SEND_TTL;
}

static void with_cas(struct exchange *exchange, VALUE cas)
{
    if (NIL_P(cas)) return;
    exchange->request.cas = NUM2ULL(cas);
    exchange->request.fields |= MEMCACHED_SEND_CAS;
    exchange->again = false;
}

// Every field that a reply can have.
static const unsigned EVERYTHING =
    MEMCACHED_WANT_FLAGS | MEMCACHED_WANT_CAS | MEMCACHED_WANT_TTL | MEMCACHED_WANT_HIT | MEMCACHED_WANT_ACCESS;

/*
 * @api private cache.read(key, value, ttl, vivify, recache) -> nil or the Array of memcached_reply_value. All arguments
 * except the key may be nil: whether to return the value, and seconds.
 */
static VALUE read_entry(VALUE self, VALUE key, VALUE value, VALUE ttl, VALUE vivify, VALUE recache)
{
    struct exchange exchange =
        prepared(self, key, MEMCACHED_GET, EVERYTHING | (RTEST(value) ? MEMCACHED_WANT_VALUE : 0));
    with_ttl(&exchange.request, ttl);
    if (!NIL_P(vivify)) {
        exchange.request.vivify = seconds(vivify);
        exchange.request.fields |= MEMCACHED_SEND_VIVIFY;
    }
    if (!NIL_P(recache)) {
        exchange.request.recache = seconds(recache);
        exchange.request.fields |= MEMCACHED_SEND_RECACHE;
    }
    memcached_exchange_run(&exchange);
    RB_GC_GUARD(exchange.key);
    return exchange.reply.status == MEMCACHED_EN ? Qnil : memcached_reply_value(&exchange.reply, exchange.bytes);
}

/* @api private cache.touched(key, ttl) -> true or false */
static VALUE touched(VALUE self, VALUE key, VALUE ttl)
{
    struct exchange exchange = prepared(self, key, MEMCACHED_GET, 0);
    with_ttl(&exchange.request, ttl);
    memcached_exchange_run(&exchange);
    RB_GC_GUARD(exchange.key);
    return exchange.reply.status == MEMCACHED_HD ? Qtrue : Qfalse;
}

// The entry's new CAS as an Integer; nil: not found; false: not stored, because another client has changed or added it.
static VALUE change_result(const struct memcached_reply *reply)
{
    switch (reply->status) {
    case MEMCACHED_HD: return reply->fields & MEMCACHED_HAS_CAS ? ULL2NUM(reply->cas) : Qtrue;
    case MEMCACHED_NF: return Qnil;
    default: return Qfalse;
    }
}

/*
 * @api private cache.store(key, bytes, flags, ttl, mode, cas) -> Integer (the CAS), nil (not found) or false. mode is
 * the protocol's: "S", "E" (add), "R", "A", "P".
 */
static VALUE store(VALUE self, VALUE key, VALUE bytes, VALUE flags, VALUE ttl, VALUE mode, VALUE cas)
{
    static const unsigned fields = MEMCACHED_WANT_CAS | MEMCACHED_SEND_FLAGS;
    struct exchange exchange = prepared(self, key, MEMCACHED_SET, fields);
    exchange.value = StringValue(bytes);
    exchange.request.flags = NUM2UINT(flags);
    with_ttl(&exchange.request, ttl);
    char letter = RSTRING_LEN(StringValue(mode)) ? RSTRING_PTR(mode)[0] : 'S';
    if (letter != 'S') {
        exchange.request.mode = letter;
        exchange.request.fields |= MEMCACHED_SEND_MODE;
        exchange.again = false;
    }
    with_cas(&exchange, cas);
    memcached_exchange_run(&exchange);
    RB_GC_GUARD(exchange.key);
    RB_GC_GUARD(bytes);
    return change_result(&exchange.reply);
}

/*
 * @api private cache.remove(key, cas, stale_for) -> true, nil (not found) or false. stale_for marks the entry as stale:
 * for this many seconds, or with true until its time is over.
 */
static VALUE remove_entry(VALUE self, VALUE key, VALUE cas, VALUE stale_for)
{
    struct exchange exchange = prepared(self, key, MEMCACHED_DELETE, 0);
    with_cas(&exchange, cas);
    if (!NIL_P(stale_for)) {
        exchange.request.fields |= MEMCACHED_INVALIDATE;
        if (stale_for != Qtrue) with_ttl(&exchange.request, stale_for);
    }
    memcached_exchange_run(&exchange);
    RB_GC_GUARD(exchange.key);
    return change_result(&exchange.reply);
}

/* @api private cache.count(key, mode, delta, initial, ttl) -> Integer, or nil: not found. mode: "I" or "D". */
static VALUE count(VALUE self, VALUE key, VALUE mode, VALUE delta, VALUE initial, VALUE ttl)
{
    static const unsigned fields = MEMCACHED_WANT_VALUE | MEMCACHED_SEND_DELTA | MEMCACHED_SEND_MODE;
    struct exchange exchange = prepared(self, key, MEMCACHED_ARITHMETIC, fields);
    exchange.again = false;
    exchange.request.mode = RSTRING_LEN(StringValue(mode)) ? RSTRING_PTR(mode)[0] : 'I';
    exchange.request.delta = NUM2ULL(delta);
    if (!NIL_P(initial)) {
        exchange.request.initial = NUM2ULL(initial);
        exchange.request.vivify = NIL_P(ttl) ? 0 : seconds(ttl);
        exchange.request.fields |= MEMCACHED_SEND_INITIAL | MEMCACHED_SEND_VIVIFY;
    }
    memcached_exchange_run(&exchange);
    RB_GC_GUARD(exchange.key);
    if (NIL_P(exchange.bytes)) return Qnil;
    uint64_t number;
    const uint8_t *digits = (const uint8_t *)RSTRING_PTR(exchange.bytes);
    if (!memcached_number(digits, digits + RSTRING_LEN(exchange.bytes), &number))
        rb_raise(memcached_eProtocolError, "the server sent %+" PRIsVALUE ", which is not a number", exchange.bytes);
    return ULL2NUM(number);
}

void memcached_single_define(VALUE klass)
{
    id_raw = rb_intern("raw");
    id_rearm = rb_intern("rearm");
    rb_define_method(klass, "get", get, -1);
    rb_define_private_method(klass, "read", read_entry, 5);
    rb_define_private_method(klass, "touched", touched, 2);
    rb_define_private_method(klass, "store", store, 6);
    rb_define_private_method(klass, "remove", remove_entry, 3);
    rb_define_private_method(klass, "count", count, 5);
}
