#include "memcached/multi.h"

static ID id_rearm, id_recovered, id_failed, id_flatten;

// ---- distributing the keys

static VALUE share_out(VALUE argument)
{
    struct multi *multi = (struct multi *)argument;
    for (long l = 0; l < multi->shard_count; l++) {
        struct shard *shard = &multi->shards[l];
        *shard = (struct shard){.server = rb_ary_entry(multi->client->servers, l), .error = Qnil};
        shard->lease = memcached_lease_of(memcached_server_of(shard->server));
    }
    for (long i = 0; i < multi->count; i++) {
        if (multi->finished[i]) continue;
        // A retried shard starts again: a part of its answers is dropped.
        if (multi->answered) multi->answered[i] = false;
        if (multi->kind == MULTI_BATCH) rb_ary_store(multi->results, i, Qnil);
        uint32_t place = 0;
        if (multi->shard_count > 1 || memcached_lease_server(&multi->shards[0].lease)->troubled) {
            VALUE server = memcached_route(multi->client, multi->self, rb_ary_entry(multi->keys, i));
            while (place < (uint32_t)multi->shard_count && multi->shards[place].server != server)
                place++;
            if (place == (uint32_t)multi->shard_count)
                rb_raise(rb_eArgError, "the ring returned a server of another client");
        }
        multi->place[i] = place;
        multi->shards[place].count++;
    }
    long first = 0;
    for (long l = 0; l < multi->shard_count; l++) {
        multi->shards[l].first = first;
        first += multi->shards[l].count;
        multi->shards[l].active = multi->shards[l].count > 0;
        multi->shards[l].count = 0;
    }
    for (long i = 0; i < multi->count; i++) {
        if (multi->finished[i]) continue;
        struct shard *shard = &multi->shards[multi->place[i]];
        multi->order[shard->first + shard->count++] = i;
    }
    return Qnil;
}

// If a key has no server, the other servers are not asked either.
static void share_out_or_abandon(struct multi *multi)
{
    int state = 0;
    rb_protect(share_out, (VALUE)multi, &state);
    if (!state) return;
    for (long l = 0; l < multi->shard_count; l++)
        if (multi->shards[l].count) memcached_abandoned(memcached_lease_server(&multi->shards[l].lease));
    rb_jump_tag(state);
}

// ---- running

static VALUE run_shards(VALUE argument)
{
    multi_run_shards((struct multi *)argument);
    return Qnil;
}

static VALUE end_shards(VALUE argument)
{
    multi_end_shards((struct multi *)argument);
    return Qnil;
}

// Reports the outcome to each server. Returns whether keys must be asked for again; raises if a retry cannot help.
static bool conclude(struct multi *multi, int round)
{
    bool failed = false;
    VALUE error = Qnil; // the first that ends the operation
    for (long l = 0; l < multi->shard_count; l++) {
        struct shard *shard = &multi->shards[l];
        if (shard->count == 0) continue;
        if (NIL_P(shard->error)) {
            if (memcached_lease_server(&shard->lease)->troubled) rb_funcall(shard->server, id_recovered, 0);
            continue;
        }
        failed = true;
        bool again = shard->lease.had; // without a connection, the error is not the server's
        if (again) rb_funcall(shard->server, id_failed, 1, shard->error);
        again = again && memcached_in_time(shard->error, multi->until) && round < MEMCACHED_ATTEMPTS &&
                (multi->again || !shard->sent);
        if (!again && NIL_P(error)) error = shard->error;
    }
    if (!NIL_P(error)) rb_exc_raise(error);
    return failed;
}

static void perform(struct multi *multi)
{
    VALUE buffers[4];
    long count = multi->count;
    multi->shard_count = RARRAY_LEN(multi->client->servers);
    multi->order = ALLOCV_N(long, buffers[0], count);
    multi->place = ALLOCV_N(uint32_t, buffers[1], count);
    multi->finished = ALLOCV_N(bool, buffers[2], count);
    multi->shards = ALLOCV_N(struct shard, buffers[3], multi->shard_count); // the GC scans it for the shards' VALUEs
    MEMZERO(multi->finished, bool, count);
    multi->until = deadline_after(deadline_now(), multi->client->span);
    for (int round = 1;; round++) {
        share_out_or_abandon(multi);
        rb_ensure(run_shards, (VALUE)multi, end_shards, (VALUE)multi);
        if (!conclude(multi, round)) break;
    }
    for (int i = 0; i < 4; i++)
        ALLOCV_END(buffers[i]);
    if (multi->kind != MULTI_BATCH && !NIL_P(multi->error)) rb_exc_raise(multi->error);
}

// ---- keys

// The keys, flattened, in an Array of our own.
static VALUE gathered(VALUE keys)
{
    bool flat = true;
    for (long i = 0; i < RARRAY_LEN(keys); i++)
        flat = flat && !RB_TYPE_P(RARRAY_AREF(keys, i), T_ARRAY);
    return flat ? rb_ary_dup(keys) : rb_funcall(keys, id_flatten, 0);
}

// The keys as sent; the same Array if they need no change.
static VALUE wire_keys(const struct memcached_client *client, VALUE self, VALUE keys)
{
    VALUE wire = keys;
    for (long i = 0; i < RARRAY_LEN(keys); i++) {
        VALUE key = rb_ary_entry(keys, i);
        VALUE sent = memcached_wire_key(client, self, key);
        if (sent == key && wire == keys) continue;
        if (wire == keys) wire = rb_ary_dup(keys);
        rb_ary_store(wire, i, sent);
    }
    return wire;
}

static struct multi prepared(VALUE self, enum multi_kind kind, VALUE keys, unsigned fields)
{
    struct multi multi = {.self = self, .client = memcached_client_of(self), .kind = kind, .again = true};
    Check_Type(keys, T_ARRAY);
    multi.count = RARRAY_LEN(keys);
    multi.keys = wire_keys(multi.client, self, keys);
    multi.values = multi.flags = multi.results = multi.taken = multi.error = Qnil;
    multi.pattern.verb = (enum memcached_verb)kind; // a batch sets the verb of each request
    multi.pattern.fields = fields;
    return multi;
}

// ---- reading

// Gives up the right to recache stale values, which belongs to #fetch.
static void give_back(struct multi *multi, VALUE keys)
{
    if (NIL_P(multi->taken)) return;
    for (long i = 0; i < RARRAY_LEN(multi->taken); i++)
        rb_funcall(multi->self, id_rearm, 1, rb_ary_entry(keys, NUM2LONG(rb_ary_entry(multi->taken, i))));
}

// Compacts `pairs` to the found keys, in order, each followed by its decoded value. Returns the number of VALUEs.
static long found_pairs(struct multi *multi, VALUE keys, VALUE *pairs, bool raw)
{
    long filled = 0;
    VALUE allowance = 0;
    for (long i = 0; i < multi->count; i++) {
        VALUE value = pairs[2 * i + 1];
        if (!multi->answered[i]) continue;
        if (!raw) value = memcached_decode(multi->client, value, multi->reply_flags[i], &allowance);
        if (multi->reply_cas) value = rb_assoc_new(value, ULL2NUM(multi->reply_cas[i]));
        pairs[filled++] = rb_ary_entry(keys, i);
        pairs[filled++] = value;
    }
    RB_GC_GUARD(allowance);
    return filled;
}

static VALUE get_all(VALUE self, VALUE keys, bool with_cas, bool raw)
{
    VALUE hash = rb_hash_new();
    if (RARRAY_LEN(keys) == 0) return hash;
    unsigned fields =
        MEMCACHED_WANT_VALUE | MEMCACHED_WANT_FLAGS | MEMCACHED_QUIET | (with_cas ? MEMCACHED_WANT_CAS : 0);
    struct multi multi = prepared(self, MULTI_GET, keys, fields);
    VALUE buffers[4] = {0};
    multi.reply_flags = ALLOCV_N(uint32_t, buffers[0], multi.count);
    if (with_cas) multi.reply_cas = ALLOCV_N(uint64_t, buffers[1], multi.count);
    multi.answered = ALLOCV_N(bool, buffers[2], multi.count);
    multi.pairs = ALLOCV_N(VALUE, buffers[3], 2 * multi.count);
    perform(&multi);
    give_back(&multi, keys);
    long filled = found_pairs(&multi, keys, multi.pairs, raw);
    rb_hash_bulk_insert(filled, multi.pairs, hash); // makes room for all pairs first
    for (int i = 0; i < 4; i++)
        ALLOCV_END(buffers[i]);
    RB_GC_GUARD(multi.keys);
    RB_GC_GUARD(keys);
    return hash;
}

/*
 * call-seq: cache.get_multi(*keys) -> Hash
 *
 * Reads the values of many keys. Returns a Hash from the given keys to their values, without the missing ones. All
 * servers are asked at once. If a server fails and a retry does not help, its error is raised: a partial answer is
 * never returned.
 */
static VALUE get_multi(VALUE self, VALUE keys)
{
    return get_all(self, gathered(keys), false, false);
}

/*
 * call-seq: cache.get_multi_cas(*keys) -> Hash
 *
 * Like #get_multi, but each value is [value, CAS].
 */
static VALUE get_multi_cas(VALUE self, VALUE keys)
{
    return get_all(self, gathered(keys), true, false);
}

/*
 * call-seq: cache.get_multi_raw(*keys) -> Hash
 *
 * Like #get_multi, but returns the stored bytes without decoding.
 */
static VALUE get_multi_raw(VALUE self, VALUE keys)
{
    return get_all(self, gathered(keys), false, true);
}

// ---- writing

/* @api private cache.store_all(keys, values, flags, ttl) -> nil */
static VALUE store_all(VALUE self, VALUE keys, VALUE values, VALUE flags, VALUE ttl)
{
    Check_Type(values, T_ARRAY);
    Check_Type(flags, T_ARRAY);
    struct multi multi = prepared(self, MULTI_SET, keys, MEMCACHED_SEND_FLAGS | MEMCACHED_QUIET);
    multi.values = values;
    multi.flags = flags;
    if (!NIL_P(ttl)) {
        multi.pattern.ttl = NUM2INT(ttl);
        multi.pattern.fields |= MEMCACHED_SEND_TTL;
    }
    if (multi.count) perform(&multi);
    RB_GC_GUARD(multi.keys);
    RB_GC_GUARD(values);
    RB_GC_GUARD(flags);
    return Qnil;
}

/* @api private cache.remove_all(keys) -> Integer. How many entries were removed, as far as the servers reported. */
static VALUE remove_all(VALUE self, VALUE keys)
{
    struct multi multi = prepared(self, MULTI_DELETE, keys, MEMCACHED_QUIET);
    if (multi.count == 0) return INT2FIX(0);
    VALUE buffer;
    multi.answered = ALLOCV_N(bool, buffer, multi.count);
    perform(&multi);
    long removed = multi.count;
    for (long i = 0; i < multi.count; i++)
        removed -= multi.answered[i]; // a quiet delete answers only for missing keys
    ALLOCV_END(buffer);
    RB_GC_GUARD(multi.keys);
    return LONG2NUM(removed);
}

/*
 * @api private cache.perform_all(keys, commands, again) -> Array. For each command: [status, …] as
 * memcached_reply_value makes it, or an exception.
 */
static VALUE perform_all(VALUE self, VALUE keys, VALUE commands, VALUE again)
{
    Check_Type(commands, T_ARRAY);
    struct multi multi = prepared(self, MULTI_BATCH, keys, 0);
    if (RARRAY_LEN(commands) != multi.count) rb_raise(rb_eArgError, "keys and commands differ in number");
    multi.values = commands;
    multi.again = RTEST(again);
    multi.results = rb_ary_new_capa(multi.count);
    if (multi.count) perform(&multi);
    for (long i = 0; i < multi.count; i++) {
        // This command has no answer, because an earlier error ended the exchange.
        if (NIL_P(rb_ary_entry(multi.results, i))) rb_exc_raise(multi.error);
    }
    RB_GC_GUARD(multi.keys);
    RB_GC_GUARD(commands);
    return multi.results;
}

void memcached_multi_define(VALUE klass)
{
    id_rearm = rb_intern("rearm");
    id_recovered = rb_intern("recovered");
    id_failed = rb_intern("failed");
    id_flatten = rb_intern("flatten");
    rb_define_method(klass, "get_multi", get_multi, -2);
    rb_define_method(klass, "get_multi_cas", get_multi_cas, -2);
    rb_define_method(klass, "get_multi_raw", get_multi_raw, -2);
    rb_define_private_method(klass, "store_all", store_all, 4);
    rb_define_private_method(klass, "remove_all", remove_all, 1);
    rb_define_private_method(klass, "perform_all", perform_all, 3);
}
