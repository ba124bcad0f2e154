#include "memcached/internals.h"

// Many keys at once. Each server gets its share in one go, all servers before the first reply is read; connections are taken
// in the order of the servers, so that two of these never wait for each other.
enum {
    CHUNK = 1024,         // requests of one go: what is asked for has to fit into the buffers of the sockets
    FLUSH_AT = 256 << 10, // bytes
    RECORD = 16000        // … of whole requests in a record of TLS, which has 16384 at most
};

static ID id_tls_p;

enum kind { KIND_GET, KIND_SET, KIND_DELETE, KIND_BATCH };

struct leg {
    VALUE server;
    struct lease lease;
    long first, count; // which of `order`
    long done;         // of these
    long chunk;        // of the go that is on its way
    uint32_t base;     // the opaque of its first request
    VALUE error;       // of the connection, or nil
    bool begun, sent, sound, active;
};

struct multi {
    VALUE self;
    const struct memcached_client *client;
    enum kind kind;
    VALUE keys;    // as they are sent
    VALUE values;  // of SET: bytes; of BATCH: commands
    VALUE flags;   // of SET
    VALUE results; // as many as keys: bytes; true; for BATCH [status, …] or an exception
    VALUE error;   // the first reply that was an error
    struct memcached_request pattern;
    uint32_t *reply_flags; // of GET
    uint64_t *reply_cas;
    long *order;     // indices of keys by server
    uint32_t *place; // of each key, the server
    bool *finished;
    struct leg *legs;
    long count, leg_count, leg_at;
    deadline_t until;
    bool again, with_cas;
};

// ---- what is asked

// As lib/heddle/memcached/pipeline.rb makes them.
enum { PART_VERB, PART_VALUE, PART_FLAGS, PART_TTL, PART_CAS, PART_MODE, PART_DELTA, PART_INITIAL, PART_STALE };

static void read_command(const struct multi *multi, long index, struct memcached_request *request, VALUE *value)
{
    VALUE command = rb_ary_entry(multi->values, index);
    Check_Type(command, T_ARRAY);
    int verb = NUM2INT(rb_ary_entry(command, PART_VERB));
    if (verb < MEMCACHED_GET || verb > MEMCACHED_ARITHMETIC) rb_raise(rb_eArgError, "no such command: %d", verb);
    request->verb = (enum memcached_verb)verb;
    if (verb == MEMCACHED_GET) request->fields |= MEMCACHED_WANT_VALUE | MEMCACHED_WANT_FLAGS;
    if (verb == MEMCACHED_SET) {
        *value = rb_ary_entry(command, PART_VALUE);
        Check_Type(*value, T_STRING);
        request->flags = NUM2UINT(rb_ary_entry(command, PART_FLAGS));
        request->fields |= MEMCACHED_SEND_FLAGS | MEMCACHED_WANT_CAS;
    }
    VALUE part = rb_ary_entry(command, PART_TTL);
    if (!NIL_P(part)) {
        request->ttl = request->vivify = NUM2INT(part);
        request->fields |= MEMCACHED_SEND_TTL;
    }
    part = rb_ary_entry(command, PART_CAS);
    if (!NIL_P(part)) {
        request->cas = NUM2ULL(part);
        request->fields |= MEMCACHED_SEND_CAS;
    }
    part = rb_ary_entry(command, PART_MODE);
    if (!NIL_P(part)) {
        StringValue(part);
        request->mode = RSTRING_LEN(part) ? RSTRING_PTR(part)[0] : 'S';
        request->fields |= MEMCACHED_SEND_MODE;
    }
    if (verb == MEMCACHED_ARITHMETIC) {
        request->fields &= ~(unsigned)MEMCACHED_SEND_TTL;
        request->fields |= MEMCACHED_WANT_VALUE | MEMCACHED_SEND_DELTA;
        request->delta = NUM2ULL(rb_ary_entry(command, PART_DELTA));
        part = rb_ary_entry(command, PART_INITIAL);
        if (!NIL_P(part)) {
            request->initial = NUM2ULL(part);
            request->fields |= MEMCACHED_SEND_INITIAL | MEMCACHED_SEND_VIVIFY;
        }
    }
    if (RTEST(rb_ary_entry(command, PART_STALE))) request->fields |= MEMCACHED_INVALIDATE;
}

// What is asked for this key, but for its opaque. All but batches ask the same of each.
static struct memcached_request *request_of(struct multi *multi, long index, VALUE *value)
{
    struct memcached_request *request = &multi->pattern;
    *value = Qnil;
    if (multi->kind == KIND_SET) {
        *value = rb_ary_entry(multi->values, index);
        Check_Type(*value, T_STRING);
        request->flags = NUM2UINT(rb_ary_entry(multi->flags, index));
    } else if (multi->kind == KIND_BATCH) {
        *request = (struct memcached_request){.verb = MEMCACHED_GET};
        read_command(multi, index, request, value);
    }
    return request;
}

static bool quiet(const struct multi *multi)
{
    return multi->kind != KIND_BATCH;
}

// ---- a server's share

static VALUE send_chunk(VALUE argument)
{
    struct multi *multi = (struct multi *)argument;
    struct leg *leg = &multi->legs[multi->leg_at];
    if (!leg->begun) {
        leg->begun = true;
        lease_begin(&leg->lease, leg->server, multi->until, !multi->again);
    }
    VALUE stream_object = leg->lease.stream;
    struct stream *stream = stream_of(stream_object);
    stream_bound(stream, multi->until);
    leg->chunk = leg->count - leg->done < CHUNK ? leg->count - leg->done : CHUNK;
    leg->base = leg->lease.server->opaque + 1;
    leg->lease.server->opaque += (uint32_t)leg->chunk;
    stream_expect(stream, 1);
    // memcached 1.6.18 never sees what a record of TLS has behind the end of a request that began in the record before: it
    // waits for the socket, while OpenSSL holds the rest. (1.6.45 does.) So requests begin and end with records.
    bool tls = RTEST(rb_funcall(stream_object, id_tls_p, 0));
    size_t most = tls ? RECORD : FLUSH_AT;
    size_t pending = 0;
    for (long i = 0; i < leg->chunk; i++) {
        long index = multi->order[leg->first + leg->done + i];
        VALUE value;
        struct memcached_request *request = request_of(multi, index, &value);
        request->opaque = leg->base + (uint32_t)i;
        VALUE key = rb_ary_entry(multi->keys, index);
        size_t length = 2 * (size_t)RSTRING_LEN(key) + 120 + (NIL_P(value) ? 0 : (size_t)RSTRING_LEN(value));
        if (pending && pending + length > most) {
            stream_flush(stream);
            pending = 0;
        }
        memcached_ask(stream, stream_object, request, key, value, &leg->sent);
        pending += length;
        RB_GC_GUARD(value);
    }
    if (pending > most) stream_flush(stream);
    if (quiet(multi)) stream_append(stream, "mn\r\n", 4);
    stream_flush(stream);
    RB_GC_GUARD(stream_object);
    return Qnil;
}

// The place within the go of the request that the reply answers.
static long answered(struct multi *multi, struct leg *leg, struct stream *stream, const struct memcached_reply *reply,
                     long next)
{
    // Batches have an answer to each, in order; in older servers EN does not say to which.
    long at = reply->fields & MEMCACHED_HAS_OPAQUE ? (long)(uint32_t)(reply->opaque - leg->base) : next;
    if (at < next || at >= leg->chunk || (!quiet(multi) && at != next))
        memcached_nonsense(stream, "the reply to another request");
    VALUE value;
    struct memcached_request *request = request_of(multi, multi->order[leg->first + leg->done + at], &value);
    request->opaque = leg->base + (uint32_t)at;
    memcached_check_reply(stream, request, reply);
    return at;
}

static void keep_result(struct multi *multi, long index, const struct memcached_reply *reply, VALUE bytes)
{
    VALUE result = Qnil;
    switch (multi->kind) {
    case KIND_GET:
        if (memcached_placeholder(reply)) return;
        multi->reply_flags[index] = reply->flags;
        multi->reply_cas[index] = reply->cas;
        result = bytes;
        break;
    case KIND_SET:
    case KIND_DELETE:
        result = Qfalse; // what was done is not reported
        break;
    case KIND_BATCH:
        result = memcached_reply_value(reply, bytes);
        rb_ary_unshift(result, INT2FIX(reply->status));
        break;
    }
    rb_ary_store(multi->results, index, result);
}

static VALUE receive_chunk(VALUE argument)
{
    struct multi *multi = (struct multi *)argument;
    struct leg *leg = &multi->legs[multi->leg_at];
    VALUE stream_object = leg->lease.stream;
    struct stream *stream = stream_of(stream_object);
    leg->sound = true;
    for (long next = 0; quiet(multi) || next < leg->chunk;) {
        struct memcached_reply reply;
        memcached_read_reply(stream, &reply);
        if (reply.status == MEMCACHED_MN && quiet(multi)) {
            stream_consume(stream, reply.length);
            break;
        }
        VALUE error = memcached_reply_error(leg->lease.server, &reply, &leg->sound);
        if (!NIL_P(error)) {
            stream_consume(stream, reply.length);
            if (NIL_P(multi->error)) multi->error = error;
            if (!leg->sound) break; // nobody knows what the rest would answer
            if (!quiet(multi)) rb_ary_store(multi->results, multi->order[leg->first + leg->done + next++], error);
            continue;
        }
        long at = answered(multi, leg, stream, &reply, next);
        next = at + 1;
        VALUE bytes = memcached_take_value(stream, &reply);
        keep_result(multi, multi->order[leg->first + leg->done + at], &reply, bytes);
    }
    if (leg->sound) {
        size_t more;
        stream_buffered(stream, &more);
        if (more) memcached_nonsense(stream, "more than it was asked for");
        stream_replied(stream, 1);
    }
    for (long i = 0; i < leg->chunk; i++)
        multi->finished[multi->order[leg->first + leg->done + i]] = true;
    leg->done = leg->sound ? leg->done + leg->chunk : leg->count;
    if (!leg->sound) // what was not asked is not done either: the error says so
        for (long i = 0; i < leg->count; i++)
            multi->finished[multi->order[leg->first + i]] = true;
    leg->active = leg->done < leg->count;
    if (!leg->active && leg->sound) stream_bound(stream, DEADLINE_NEVER);
    RB_GC_GUARD(stream_object);
    return Qnil;
}

static void end_leg(struct leg *leg)
{
    if (!leg->begun) return;
    leg->begun = false;
    lease_end(&leg->lease, leg->sound && !leg->active);
}

// One step of a leg; what fails is kept for later, unless it is no mere error.
static void step(struct multi *multi, long at, VALUE (*body)(VALUE))
{
    struct leg *leg = &multi->legs[at];
    if (!leg->active || !NIL_P(leg->error)) return;
    multi->leg_at = at;
    leg->sound = false;
    VALUE before = rb_errinfo();
    int state = 0;
    rb_protect(body, (VALUE)multi, &state);
    if (!state) return;
    VALUE error = rb_errinfo();
    if (!memcached_is_failure(error)) rb_jump_tag(state);
    rb_set_errinfo(before);
    leg->sound = false;
    leg->error = error;
}

// ---- all of them

static void share_out(struct multi *multi)
{
    for (long l = 0; l < multi->leg_count; l++) {
        struct leg *leg = &multi->legs[l];
        *leg = (struct leg){.server = rb_ary_entry(multi->client->servers, l), .error = Qnil};
        leg->lease.stream = Qnil;
        leg->lease.server = memcached_server_of(leg->server);
    }
    for (long i = 0; i < multi->count; i++) {
        if (multi->finished[i]) continue;
        rb_ary_store(multi->results, i, Qnil); // what a part of an answer said is no answer
        uint32_t place = 0;
        if (multi->leg_count > 1 || multi->legs[0].lease.server->troubled) {
            VALUE server = memcached_route(multi->client, multi->self, rb_ary_entry(multi->keys, i));
            while (place < (uint32_t)multi->leg_count && multi->legs[place].server != server)
                place++;
            if (place == (uint32_t)multi->leg_count) rb_raise(rb_eArgError, "a server of another client");
        }
        multi->place[i] = place;
        multi->legs[place].count++;
    }
    long first = 0;
    for (long l = 0; l < multi->leg_count; l++) {
        multi->legs[l].first = first;
        first += multi->legs[l].count;
        multi->legs[l].active = multi->legs[l].count > 0;
        multi->legs[l].count = 0;
    }
    for (long i = 0; i < multi->count; i++) {
        if (multi->finished[i]) continue;
        struct leg *leg = &multi->legs[multi->place[i]];
        multi->order[leg->first + leg->count++] = i;
    }
}

static bool any_active(const struct multi *multi)
{
    for (long l = 0; l < multi->leg_count; l++)
        if (multi->legs[l].active && NIL_P(multi->legs[l].error)) return true;
    return false;
}

static VALUE run_legs(VALUE argument)
{
    struct multi *multi = (struct multi *)argument;
    while (any_active(multi)) {
        for (long l = 0; l < multi->leg_count; l++)
            step(multi, l, send_chunk);
        for (long l = 0; l < multi->leg_count; l++)
            step(multi, l, receive_chunk);
    }
    return Qnil;
}

static VALUE end_legs(VALUE argument)
{
    struct multi *multi = (struct multi *)argument;
    for (long l = 0; l < multi->leg_count; l++)
        end_leg(&multi->legs[l]);
    return Qnil;
}

// Tells the servers' keepers how it went. Returns whether something has to be asked again; raises when that is no use.
static bool conclude(struct multi *multi, int round)
{
    bool failed = false;
    for (long l = 0; l < multi->leg_count; l++) {
        struct leg *leg = &multi->legs[l];
        if (leg->count == 0) continue;
        if (NIL_P(leg->error)) {
            if (leg->lease.server->troubled) rb_funcall(leg->server, rb_intern("recovered"), 0);
            continue;
        }
        failed = true;
        bool again =
            memcached_in_time(leg->error, multi->until) && round < MEMCACHED_ATTEMPTS && (multi->again || !leg->sent);
        VALUE key = rb_ary_entry(multi->keys, multi->order[leg->first]);
        memcached_recover(multi->self, leg->server, leg->error, key, again);
    }
    return failed;
}

static void perform(struct multi *multi)
{
    VALUE buffers[5];
    long count = multi->count;
    multi->leg_count = RARRAY_LEN(multi->client->servers);
    multi->order = ALLOCV_N(long, buffers[0], count);
    multi->place = ALLOCV_N(uint32_t, buffers[1], count);
    multi->finished = ALLOCV_N(bool, buffers[2], count);
    // Legs hold VALUEs: on the stack, or in memory that is looked through as if it were.
    VALUE legs_buffer;
    multi->legs = rb_alloc_tmp_buffer(&legs_buffer, (long)sizeof(struct leg) * multi->leg_count);
    MEMZERO(multi->finished, bool, count);
    multi->until = deadline_after(deadline_now(), multi->client->span);
    multi->error = Qnil;
    for (int round = 1;; round++) {
        share_out(multi);
        rb_ensure(run_legs, (VALUE)multi, end_legs, (VALUE)multi);
        if (!conclude(multi, round)) break;
    }
    for (int i = 0; i < 3; i++)
        ALLOCV_END(buffers[i]);
    rb_free_tmp_buffer(&legs_buffer);
    if (multi->kind != KIND_BATCH && !NIL_P(multi->error)) rb_exc_raise(multi->error);
}

// The keys as they are sent: the same Array where that is all the same.
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

static struct multi prepared(VALUE self, enum kind kind, VALUE keys, unsigned fields)
{
    struct multi multi = {.self = self, .client = memcached_client_of(self), .kind = kind, .again = true};
    Check_Type(keys, T_ARRAY);
    multi.count = RARRAY_LEN(keys);
    multi.keys = wire_keys(multi.client, self, keys);
    multi.values = multi.flags = multi.error = Qnil;
    multi.results = rb_ary_new_capa(multi.count);
    multi.pattern.verb = (enum memcached_verb)kind; // of a batch, each says its own
    multi.pattern.fields = fields;
    return multi;
}

static VALUE get_all(VALUE self, VALUE keys, bool with_cas, bool raw)
{
    if (RARRAY_LEN(keys) == 0) return rb_hash_new();
    unsigned fields =
        MEMCACHED_WANT_VALUE | MEMCACHED_WANT_FLAGS | MEMCACHED_QUIET | (with_cas ? MEMCACHED_WANT_CAS : 0);
    struct multi multi = prepared(self, KIND_GET, keys, fields);
    VALUE flags_buffer, cas_buffer;
    multi.reply_flags = ALLOCV_N(uint32_t, flags_buffer, multi.count);
    multi.reply_cas = ALLOCV_N(uint64_t, cas_buffer, multi.count);
    perform(&multi);
    VALUE hash = rb_hash_new();
    for (long i = 0; i < multi.count; i++) {
        VALUE bytes = rb_ary_entry(multi.results, i);
        if (NIL_P(bytes)) continue;
        VALUE value = raw ? bytes : memcached_decode(multi.client, bytes, multi.reply_flags[i]);
        if (with_cas) value = rb_assoc_new(value, ULL2NUM(multi.reply_cas[i]));
        rb_hash_aset(hash, rb_ary_entry(keys, i), value);
    }
    ALLOCV_END(flags_buffer);
    ALLOCV_END(cas_buffer);
    RB_GC_GUARD(multi.keys);
    RB_GC_GUARD(multi.results);
    return hash;
}

// The keys, flat and of our own.
static VALUE gathered(VALUE keys)
{
    bool flat = true;
    for (long i = 0; i < RARRAY_LEN(keys); i++)
        flat = flat && !RB_TYPE_P(rb_ary_entry(keys, i), T_ARRAY);
    return flat ? rb_ary_dup(keys) : rb_funcall(keys, rb_intern("flatten"), 0);
}

/*
 * call-seq: cache.get_multi(*keys) -> Hash
 *
 * What is stored under the keys, by the keys as they were given; those that are missing are left out. All servers are asked
 * at once. If a server fails and trying again does not help, its error is raised: a part of the answer is no answer.
 */
static VALUE get_multi(VALUE self, VALUE keys)
{
    return get_all(self, gathered(keys), false, false);
}

/* call-seq: cache.get_multi_cas(*keys) -> Hash of [value, CAS]. Otherwise as #get_multi. */
static VALUE get_multi_cas(VALUE self, VALUE keys)
{
    return get_all(self, gathered(keys), true, false);
}

/* call-seq: cache.get_multi_raw(*keys) -> Hash of the bytes as they are stored. Otherwise as #get_multi. */
static VALUE get_multi_raw(VALUE self, VALUE keys)
{
    return get_all(self, gathered(keys), false, true);
}

/* @api private cache.store_all(keys, values, flags, ttl) -> nil */
static VALUE store_all(VALUE self, VALUE keys, VALUE values, VALUE flags, VALUE ttl)
{
    Check_Type(values, T_ARRAY);
    Check_Type(flags, T_ARRAY);
    struct multi multi = prepared(self, KIND_SET, keys, MEMCACHED_SEND_FLAGS | MEMCACHED_QUIET);
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

/* @api private cache.remove_all(keys) -> Integer. How many there were, as far as the servers said. */
static VALUE remove_all(VALUE self, VALUE keys)
{
    struct multi multi = prepared(self, KIND_DELETE, keys, MEMCACHED_QUIET);
    if (multi.count) perform(&multi);
    long removed = multi.count;
    for (long i = 0; i < RARRAY_LEN(multi.results); i++)
        removed -= rb_ary_entry(multi.results, i) == Qfalse;
    RB_GC_GUARD(multi.keys);
    return LONG2NUM(removed);
}

/*
 * @api private cache.perform_all(keys, commands, again) -> Array of [status, …] as memcached_reply_value makes them, or an
 * exception, each.
 */
static VALUE perform_all(VALUE self, VALUE keys, VALUE commands, VALUE again)
{
    Check_Type(commands, T_ARRAY);
    struct multi multi = prepared(self, KIND_BATCH, keys, 0);
    if (RARRAY_LEN(commands) != multi.count) rb_raise(rb_eArgError, "a command has no key, or a key no command");
    multi.values = commands;
    multi.again = RTEST(again);
    if (multi.count) perform(&multi);
    if (!NIL_P(multi.error) && RARRAY_LEN(multi.results) < multi.count) rb_exc_raise(multi.error);
    RB_GC_GUARD(multi.keys);
    RB_GC_GUARD(commands);
    return multi.results;
}

void memcached_define_multi(VALUE klass)
{
    id_tls_p = rb_intern("tls?");
    rb_define_method(klass, "get_multi", get_multi, -2);
    rb_define_method(klass, "get_multi_cas", get_multi_cas, -2);
    rb_define_method(klass, "get_multi_raw", get_multi_raw, -2);
    rb_define_private_method(klass, "store_all", store_all, 4);
    rb_define_private_method(klass, "remove_all", remove_all, 1);
    rb_define_private_method(klass, "perform_all", perform_all, 3);
}
