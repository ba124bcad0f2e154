#include "memcached/multi.h"
#include "protect.h"

#include <string.h>

enum {
    CHUNK = 1024,         // requests of one window: their replies have to fit into the sockets' buffers
    FLUSH_AT = 256 << 10, // bytes
    RECORD = 16000        // bytes of whole requests in one TLS record, which holds at most 16384
};

struct step {
    struct multi *multi;
    struct shard *shard;
};

static bool quiet(const struct multi *multi)
{
    return multi->kind != MULTI_BATCH;
}

// The index of the key at this place of the window.
static long key_at(const struct multi *multi, const struct shard *shard, long place)
{
    return multi->order[shard->first + shard->done + place];
}

// The request for this key, without its opaque. Except for batches, it is the same for each key.
static struct memcached_request *request_of(struct multi *multi, long index, VALUE *value)
{
    struct memcached_request *request = &multi->pattern;
    *value = Qnil;
    if (multi->kind == MULTI_SET) {
        *value = rb_ary_entry(multi->values, index);
        Check_Type(*value, T_STRING);
        request->flags = NUM2UINT(rb_ary_entry(multi->flags, index));
    } else if (multi->kind == MULTI_BATCH) {
        *request = (struct memcached_request){.verb = MEMCACHED_GET};
        multi_read_command(multi, index, request, value);
    }
    return request;
}

// ---- sending

static VALUE send_chunk(VALUE argument)
{
    const struct step *step = (const struct step *)argument;
    struct multi *multi = step->multi;
    struct shard *shard = step->shard;
    if (!shard->begun) {
        shard->begun = true;
        memcached_lease_begin(&shard->lease, multi->until, multi->until, !multi->again);
    }
    VALUE stream_object = memcached_lease_stream(&shard->lease);
    struct stream *stream = stream_of(stream_object);
    stream_bound(stream, multi->until);
    shard->chunk = shard->count - shard->done < CHUNK ? shard->count - shard->done : CHUNK;
    struct memcached_server *server = memcached_lease_server(&shard->lease);
    shard->base = server->opaque + 1;
    server->opaque += (uint32_t)shard->chunk;
    stream_expect(stream, 1);
    // memcached 1.6.18 overlooks the part of a TLS record behind the end of a request that began in the record before:
    // it waits for the socket, while OpenSSL holds the rest. (1.6.45 is correct.) So requests begin and end with
    // records.
    size_t most = stream_encrypted(stream) ? RECORD : FLUSH_AT;
    size_t pending = 0;
    for (long i = 0; i < shard->chunk; i++) {
        long index = key_at(multi, shard, i);
        VALUE value;
        struct memcached_request *request = request_of(multi, index, &value);
        request->opaque = shard->base + (uint32_t)i;
        VALUE key = rb_ary_entry(multi->keys, index);
        size_t length = 2 * (size_t)RSTRING_LEN(key) + 120 + (NIL_P(value) ? 0 : (size_t)RSTRING_LEN(value));
        if (pending && pending + length > most) {
            stream_flush(stream);
            pending = 0;
        }
        memcached_ask(stream, stream_object, request, key, value, &shard->sent);
        pending += length;
        RB_GC_GUARD(value);
    }
    if (pending > most) stream_flush(stream);
    if (quiet(multi)) stream_append(stream, "mn\r\n", 4);
    stream_flush(stream);
    RB_GC_GUARD(stream_object);
    return Qnil;
}

// ---- replies

// The place within the window of the request that the reply answers.
static long answered(struct multi *multi, struct shard *shard, struct stream *stream,
                     const struct memcached_reply *reply, long next)
{
    // Batches get an answer to each request, in order; older servers' EN does not say to which.
    long at = reply->fields & MEMCACHED_HAS_OPAQUE ? (long)(uint32_t)(reply->opaque - shard->base) : next;
    if (at < next || at >= shard->chunk || (!quiet(multi) && at != next))
        memcached_protocol_error(stream, "the reply to another request");
    VALUE value;
    struct memcached_request *request = request_of(multi, key_at(multi, shard, at), &value);
    request->opaque = shard->base + (uint32_t)at;
    memcached_check_reply(stream, request, reply);
    return at;
}

static void keep_value(struct multi *multi, long index, const struct memcached_reply *reply, VALUE bytes)
{
    if (memcached_placeholder(reply)) return;
    if (memcached_recache_won(reply)) {
        if (NIL_P(multi->taken)) multi->taken = rb_ary_new();
        rb_ary_push(multi->taken, LONG2NUM(index));
    }
    multi->reply_flags[index] = reply->flags;
    if (multi->reply_cas) multi->reply_cas[index] = reply->cas;
    multi->pairs[2 * index + 1] = bytes;
    multi->answered[index] = true;
}

static void keep_result(struct multi *multi, long index, const struct memcached_reply *reply, VALUE bytes)
{
    switch (multi->kind) {
    case MULTI_GET: keep_value(multi, index, reply, bytes); break;
    case MULTI_SET: break;
    case MULTI_DELETE: multi->answered[index] = true; break;
    case MULTI_BATCH: {
        VALUE result = memcached_reply_value(reply, bytes);
        rb_ary_unshift(result, INT2FIX(reply->status));
        rb_ary_store(multi->results, index, result);
        break;
    }
    }
}

// Ends the window, and the exchange if it is out of sync.
static void conclude_chunk(struct multi *multi, struct shard *shard, struct stream *stream)
{
    if (shard->in_sync) {
        size_t more;
        stream_buffered(stream, &more);
        if (more) memcached_protocol_error(stream, "more bytes than were requested");
        stream_replied(stream, 1);
    }
    for (long i = 0; i < shard->chunk; i++)
        multi->finished[key_at(multi, shard, i)] = true;
    shard->done = shard->in_sync ? shard->done + shard->chunk : shard->count;
    if (!shard->in_sync) // requests that were not sent are not done either: the error says so
        for (long i = 0; i < shard->count; i++)
            multi->finished[multi->order[shard->first + i]] = true;
    shard->active = shard->done < shard->count;
    if (!shard->active && shard->in_sync) stream_bound(stream, DEADLINE_NEVER);
}

static VALUE receive_chunk(VALUE argument)
{
    const struct step *step = (const struct step *)argument;
    struct multi *multi = step->multi;
    struct shard *shard = step->shard;
    VALUE stream_object = memcached_lease_stream(&shard->lease);
    struct stream *stream = stream_of(stream_object);
    shard->in_sync = true;
    for (long next = 0; quiet(multi) || next < shard->chunk;) {
        struct memcached_reply reply;
        memcached_read_reply(stream, &reply);
        if (reply.status == MEMCACHED_MN && quiet(multi)) {
            stream_consume(stream, reply.length);
            break;
        }
        VALUE error = memcached_reply_error(memcached_lease_server(&shard->lease), &reply, &shard->in_sync);
        if (!NIL_P(error)) {
            stream_consume(stream, reply.length);
            if (NIL_P(multi->error)) multi->error = error;
            if (!shard->in_sync) break; // the answers to the rest would be uncertain
            if (!quiet(multi)) rb_ary_store(multi->results, key_at(multi, shard, next++), error);
            continue;
        }
        long at = answered(multi, shard, stream, &reply, next);
        next = at + 1;
        VALUE bytes = memcached_take_value(stream, &reply);
        keep_result(multi, key_at(multi, shard, at), &reply, bytes);
    }
    conclude_chunk(multi, shard, stream);
    RB_GC_GUARD(stream_object);
    return Qnil;
}

// ---- all shards

// Runs one step of a shard. A connection's failure is kept for later; other exceptions are raised.
static void take_step(struct multi *multi, struct shard *shard, VALUE (*body)(VALUE))
{
    if (!shard->active || !NIL_P(shard->error)) return;
    struct step step = {.multi = multi, .shard = shard};
    shard->in_sync = false;
    VALUE before = rb_errinfo();
    int state = 0;
    rb_protect(body, (VALUE)&step, &state);
    if (!state) return;
    VALUE error = rb_errinfo();
    if (!memcached_is_failure(error)) rb_jump_tag(state);
    // A deadline of the caller's is raised, too: it ends the requests to the other servers, too.
    if (shard->lease.had &&
        memcached_failed_by_caller(&shard->lease, memcached_lease_interrupted(&shard->lease), error))
        rb_jump_tag(state);
    rb_set_errinfo(before);
    shard->in_sync = false;
    shard->error = error;
}

static bool any_active(const struct multi *multi)
{
    for (long l = 0; l < multi->shard_count; l++)
        if (multi->shards[l].active && NIL_P(multi->shards[l].error)) return true;
    return false;
}

void multi_run_shards(struct multi *multi)
{
    while (any_active(multi)) {
        for (long l = 0; l < multi->shard_count; l++)
            take_step(multi, &multi->shards[l], send_chunk);
        for (long l = 0; l < multi->shard_count; l++)
            take_step(multi, &multi->shards[l], receive_chunk);
    }
}

static VALUE end_shard(VALUE argument)
{
    struct shard *shard = (struct shard *)argument;
    memcached_lease_end(&shard->lease, shard->in_sync && !shard->active);
    return Qnil;
}

void multi_end_shards(struct multi *multi)
{
    int state = 0;
    for (long l = 0; l < multi->shard_count; l++) {
        struct shard *shard = &multi->shards[l];
        if (shard->active && (NIL_P(shard->error) || !shard->lease.had))
            memcached_abandoned(memcached_lease_server(&shard->lease));
        if (!shard->begun) continue;
        shard->begun = false;
        // Closing a connection may raise an interrupt of this thread; the other shards must still be ended.
        protect_next(end_shard, (VALUE)shard, &state);
    }
    if (state) rb_jump_tag(state);
}
