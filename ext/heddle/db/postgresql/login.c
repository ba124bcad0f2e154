// The methods of Heddle::DB::PostgreSQL::Protocol for logging in. Ruby decides what is said (postgresql/login.rb).
#include "db/postgresql/protocol.h"

static VALUE write_message_body(struct db_exchange *exchange)
{
    struct postgresql_protocol *protocol = exchange->protocol;
    VALUE type = exchange->arguments[0], payload = exchange->arguments[1];
    size_t length = (size_t)RSTRING_LEN(payload);
    if (length > PG_MESSAGE_MOST) postgresql_check(PG_TOO_LONG);
    struct stream *stream = stream_of(protocol->base.stream);
    uint8_t header[PG_HEADER];
    if (!NIL_P(type)) header[0] = (uint8_t)*RSTRING_PTR(type);
    pg_store_32(header + 1, (uint32_t)length + 4);
    if (NIL_P(type)) {
        stream_append(stream, header + 1, 4);
    } else {
        stream_append(stream, header, PG_HEADER);
    }
    stream_append(stream, RSTRING_PTR(payload), length);
    stream_flush(stream);
    RB_GC_GUARD(payload);
    return Qnil;
}

/* @api private protocol.write_message(type, payload): type is nil for a message of the start, which has none */
static VALUE write_message(VALUE self, VALUE type, VALUE payload)
{
    if (!NIL_P(type) && RSTRING_LEN(StringValue(type)) != 1) rb_raise(rb_eArgError, "a type is one byte");
    StringValue(payload);
    return postgresql_exchange_with(self, write_message_body, type, payload);
}

static VALUE write_bytes_body(struct db_exchange *exchange)
{
    const struct postgresql_protocol *protocol = exchange->protocol;
    struct stream *stream = stream_of(protocol->base.stream);
    stream_append(stream, RSTRING_PTR(exchange->arguments[0]), (size_t)RSTRING_LEN(exchange->arguments[0]));
    stream_flush(stream);
    return Qnil;
}

/* @api private protocol.write_bytes(bytes) */
static VALUE write_bytes(VALUE self, VALUE bytes)
{
    StringValue(bytes);
    return postgresql_exchange_with(self, write_bytes_body, bytes, Qnil);
}

static VALUE read_byte_body(struct db_exchange *exchange)
{
    const struct postgresql_protocol *protocol = exchange->protocol;
    struct stream *stream = stream_of(protocol->base.stream);
    VALUE byte = rb_str_new((const char *)stream_need(stream, 1), 1);
    stream_consume(stream, 1);
    return byte;
}

/* @api private protocol.read_byte -> String. The answer to a request for TLS, and no byte more. */
static VALUE read_byte(VALUE self)
{
    return postgresql_exchange_with(self, read_byte_body, Qnil, Qnil);
}

static VALUE read_message_body(struct db_exchange *exchange)
{
    struct pg_message message = postgresql_any_message(exchange->protocol);
    if (message.type == PG_ERROR_RESPONSE) return postgresql_error_value(message);
    if (message.type == PG_NOTICE_RESPONSE) postgresql_keep_notice(exchange->protocol, message);
    char type = (char)message.type;
    VALUE payload = rb_str_new((const char *)message.p, (long)(message.end - message.p));
    return rb_assoc_new(rb_str_new(&type, 1), payload);
}

/* @api private protocol.read_message -> [type, payload] or an error. A notice is kept, too: the next handler gets it.
 * */
static VALUE read_message(VALUE self)
{
    return postgresql_exchange_with(self, read_message_body, Qnil, Qnil);
}

void postgresql_login_define(void)
{
    rb_define_method(postgresql_cProtocol, "write_message", write_message, 2);
    rb_define_method(postgresql_cProtocol, "write_bytes", write_bytes, 1);
    rb_define_method(postgresql_cProtocol, "read_byte", read_byte, 0);
    rb_define_method(postgresql_cProtocol, "read_message", read_message, 0);
}
