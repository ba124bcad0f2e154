#include "memcached/memcached.h"

// The few commands of the text protocol that have no form in the meta protocol.

struct asking {
    VALUE request, lines, error;
    struct lease lease;
    deadline_t until;
    bool in_sync;
};

static VALUE ask_body(VALUE argument)
{
    struct asking *asking = (struct asking *)argument;
    memcached_lease_begin(&asking->lease, asking->until, asking->until, true);
    VALUE stream_object = memcached_lease_stream(&asking->lease);
    struct stream *stream = stream_of(stream_object);
    stream_bound(stream, asking->until);
    stream_expect(stream, 1);
    stream_append(stream, RSTRING_PTR(asking->request), (size_t)RSTRING_LEN(asking->request));
    bool in_sync = true;
    for (;;) {
        struct memcached_reply reply;
        memcached_read_reply(stream, &reply);
        asking->error = memcached_reply_error(memcached_lease_server(&asking->lease), &reply, &in_sync);
        if (reply.status == MEMCACHED_ERROR) in_sync = true; // an unknown command; the connection is fine
        if (!NIL_P(asking->error)) {
            stream_consume(stream, reply.length);
            break;
        }
        bool text = reply.status == MEMCACHED_VERSION || reply.status == MEMCACHED_STAT;
        bool done = reply.status == MEMCACHED_OK || reply.status == MEMCACHED_RESET || reply.status == MEMCACHED_END;
        if (!text && !done) memcached_protocol_error(stream, "a reply to another kind of request");
        if (text) rb_ary_push(asking->lines, rb_str_new((const char *)reply.text, (long)reply.text_length));
        stream_consume(stream, reply.length);
        if (reply.status != MEMCACHED_STAT) break;
    }
    size_t more;
    stream_buffered(stream, &more);
    if (more) memcached_protocol_error(stream, "more bytes than were requested");
    stream_replied(stream, 1);
    stream_bound(stream, DEADLINE_NEVER);
    asking->in_sync = in_sync;
    RB_GC_GUARD(stream_object);
    return Qnil;
}

static VALUE ask_end(VALUE argument)
{
    struct asking *asking = (struct asking *)argument;
    memcached_lease_end(&asking->lease, asking->in_sync);
    return Qnil;
}

/*
 * @api private server.ask(request, seconds) -> Array of String. The texts of the reply's lines; empty for OK. The
 * request is a whole line.
 */
static VALUE text_ask(VALUE self, VALUE request, VALUE seconds)
{
    struct asking asking = {
        .lease = memcached_lease_of(memcached_server_of(self)), .lines = rb_ary_new(), .error = Qnil};
    asking.request = rb_str_new_frozen(StringValue(request));
    asking.until = deadline_after(deadline_now(), deadline_span(seconds));
    rb_ensure(ask_body, (VALUE)&asking, ask_end, (VALUE)&asking);
    if (!NIL_P(asking.error)) rb_exc_raise(asking.error);
    return asking.lines;
}

void memcached_text_define(VALUE klass)
{
    rb_define_method(klass, "ask", text_ask, 2);
}
