#include "memcached/memcached.h"

#include <string.h>

VALUE memcached_eInvalidKey, memcached_eProtocolError;
static VALUE eServerError, eClientError, eNotANumber, eValueTooLarge;

// ---- requests

static void prepare_key(struct memcached_request *request, VALUE key)
{
    request->key = (const uint8_t *)RSTRING_PTR(key);
    request->key_length = (size_t)RSTRING_LEN(key);
    enum memcached_key kind = memcached_key(request->key, request->key_length);
    request->key_encoded = kind == MEMCACHED_KEY_ENCODED;
    if (kind > MEMCACHED_KEY_ENCODED)
        rb_raise(memcached_eInvalidKey, "the key %+" PRIsVALUE " was changed while it was in use", key);
}

void memcached_ask(struct stream *stream, VALUE stream_object, struct memcached_request *request, VALUE key,
                   VALUE value, bool *sent)
{
    prepare_key(request, key); // checked now: other code may have changed the key during the wait for a connection
    bool with_value = request->verb == MEMCACHED_SET;
    if (with_value) request->value_length = (size_t)RSTRING_LEN(value);
    size_t length = request->value_length;
    bool copied = with_value && length < MEMCACHED_UNCOPIED;
    *sent = true;
    uint8_t *room = stream_reserve(stream, MEMCACHED_REQUEST_MOST + (copied ? length + 2 : 0));
    size_t written = memcached_write(request, room);
    if (copied) {
        memcpy(room + written, RSTRING_PTR(value), length);
        memcpy(room + written + length, "\r\n", 2);
        written += length + 2;
    }
    stream_commit(stream, written);
    if (with_value && !copied) {
        // Writes exactly the announced length, whatever other code does to the String meanwhile.
        rb_funcall(stream_object, rb_intern("write"), 1, value);
        stream_append(stream, "\r\n", 2);
    }
}

// ---- replies

void memcached_protocol_error(struct stream *stream, const char *what)
{
    stream_poison(stream, "the server broke the protocol");
    rb_raise(memcached_eProtocolError,
             "the server sent %s. The connection is closed, because later bytes might answer another request", what);
}

void memcached_read_reply(struct stream *stream, struct memcached_reply *reply)
{
    for (;;) {
        size_t there;
        const uint8_t *p = stream_buffered(stream, &there);
        if (there) {
            enum memcached_parsed parsed = memcached_reply(p, p + there, reply);
            if (parsed == MEMCACHED_DONE) return;
            if (parsed == MEMCACHED_INVALID) memcached_protocol_error(stream, "a line that is not a memcached reply");
        }
        stream_need(stream, there + 1);
    }
}

void memcached_check_end(struct stream *stream, const uint8_t *end)
{
    if (memcmp(end, "\r\n", 2)) memcached_protocol_error(stream, "a value whose length differs from the announced one");
}

VALUE memcached_take_value(struct stream *stream, const struct memcached_reply *reply)
{
    size_t there, length = reply->value_length;
    const uint8_t *line = stream_buffered(stream, &there);
    if (reply->status == MEMCACHED_VA && there >= reply->length + length + 2) { // all of a short value
        memcached_check_end(stream, line + reply->length + length);
        VALUE value = rb_str_new((const char *)line + reply->length, (long)length);
        stream_consume(stream, reply->length + length + 2);
        return value;
    }
    stream_consume(stream, reply->length);
    if (reply->status != MEMCACHED_VA) return Qnil;
    VALUE value = stream_take(stream, length);
    memcached_check_end(stream, stream_need(stream, 2));
    stream_consume(stream, 2);
    return value;
}

bool memcached_reply_fits(const struct memcached_request *request, const struct memcached_reply *reply,
                          const char **what)
{
    bool right;
    switch (reply->status) {
    case MEMCACHED_VA:
        right = (request->verb == MEMCACHED_GET || request->verb == MEMCACHED_ARITHMETIC) &&
                request->fields & MEMCACHED_WANT_VALUE;
        if (request->fields & MEMCACHED_WANT_FLAGS) right = right && reply->fields & MEMCACHED_HAS_FLAGS;
        if (request->fields & MEMCACHED_WANT_CAS) right = right && reply->fields & MEMCACHED_HAS_CAS;
        break;
    case MEMCACHED_HD: right = !(request->fields & MEMCACHED_WANT_VALUE); break;
    case MEMCACHED_EN: right = request->verb == MEMCACHED_GET; break;
    case MEMCACHED_NS:
    case MEMCACHED_EX:
    case MEMCACHED_NF: right = request->verb != MEMCACHED_GET; break;
    default: right = false;
    }
    *what = right ? "the reply to another request" : "a reply to another kind of request";
    // Older servers leave the opaque out of EN.
    bool unmarked = reply->status == MEMCACHED_EN && !(reply->fields & MEMCACHED_HAS_OPAQUE);
    return right && (unmarked || (reply->fields & MEMCACHED_HAS_OPAQUE && reply->opaque == request->opaque));
}

void memcached_check_reply(struct stream *stream, const struct memcached_request *request,
                           const struct memcached_reply *reply)
{
    const char *what;
    if (!memcached_reply_fits(request, reply, &what)) memcached_protocol_error(stream, what);
}

static bool mentions(const struct memcached_reply *reply, const char *words)
{
    return reply->text && memmem(reply->text, reply->text_length, words, strlen(words));
}

VALUE memcached_reply_error(const struct memcached_server *server, const struct memcached_reply *reply, bool *in_sync)
{
    if (reply->status < MEMCACHED_ERROR) return Qnil;
    // The server's text for the message: not too long, and printable characters only.
    char text[160];
    size_t length = reply->text_length < sizeof text ? reply->text_length : sizeof text;
    for (size_t i = 0; i < length; i++)
        text[i] = reply->text[i] < ' ' || reply->text[i] > '~' ? '?' : (char)reply->text[i];
    VALUE said = rb_usascii_str_new(text, (long)length);
    VALUE name = rb_funcall(server->pool.semaphore.self, rb_intern("name"), 0);
    if (reply->status == MEMCACHED_SERVER_ERROR) {
        *in_sync = true;
        if (mentions(reply, "too large"))
            return rb_exc_new_str(eValueTooLarge,
                                  rb_sprintf("%" PRIsVALUE " refused the value: %" PRIsVALUE
                                             "; the server's limit, option -I, includes the key and some 60 bytes",
                                             name, said));
        return rb_exc_new_str(eServerError,
                              rb_sprintf("%" PRIsVALUE " failed to process the request: %" PRIsVALUE, name, said));
    }
    if (mentions(reply, "non-numeric")) {
        *in_sync = true;
        return rb_exc_new_str(eNotANumber, rb_sprintf("%" PRIsVALUE ": the value is not a number: %" PRIsVALUE
                                                      "; start counters with incr(key, by, initial: 0)",
                                                      name, said));
    }
    *in_sync = false;
    if (reply->status == MEMCACHED_ERROR) said = rb_str_new_cstr("ERROR");
    return rb_exc_new_str(eClientError, rb_sprintf("%" PRIsVALUE " did not understand the request: %" PRIsVALUE
                                                   "; memcached 1.6.18 or newer is needed. The connection is closed",
                                                   name, said));
}

VALUE memcached_reply_value(const struct memcached_reply *reply, VALUE bytes)
{
    unsigned fields = reply->fields;
    VALUE parts[] = {
        bytes,
        UINT2NUM(reply->flags),
        fields & MEMCACHED_HAS_CAS ? ULL2NUM(reply->cas) : Qnil,
        fields & MEMCACHED_HAS_TTL ? LL2NUM(reply->ttl) : Qnil,
        fields & MEMCACHED_HAS_ACCESS ? ULL2NUM(reply->access) : Qnil,
        fields & MEMCACHED_HAS_HIT ? (reply->hit ? Qtrue : Qfalse) : Qnil,
        UINT2NUM(fields & (MEMCACHED_WON | MEMCACHED_STALE | MEMCACHED_WAITING)),
    };
    return rb_ary_new_from_values(sizeof parts / sizeof *parts, parts);
}

static VALUE error_class(VALUE klass, const char *name)
{
    VALUE error = rb_const_get(klass, rb_intern(name));
    rb_gc_register_mark_object(error);
    return error;
}

void memcached_messages_define(VALUE klass)
{
    memcached_eInvalidKey = error_class(klass, "InvalidKey");
    memcached_eProtocolError = error_class(klass, "ProtocolError");
    eServerError = error_class(klass, "ServerError");
    eClientError = error_class(klass, "ClientError");
    eNotANumber = error_class(klass, "NotANumber");
    eValueTooLarge = error_class(klass, "ValueTooLarge");
}
