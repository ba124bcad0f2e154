// The login methods of Heddle::DB::MySQL::Protocol. Ruby decides the contents, packet by packet
// (lib/heddle/db/mysql/login.rb).
#include "db/mysql/protocol.h"

static VALUE greeting_body(struct db_exchange *exchange)
{
    struct mysql_protocol *protocol = exchange->protocol;
    protocol->sequence = 0;
    struct mysql_span packet = mysql_packet(protocol);
    if (mysql_reply(packet.at, packet.at + packet.length) == MYSQL_REPLY_ERROR)
        return mysql_error_value(protocol, packet);
    struct mysql_greeting greeting;
    if (!mysql_greeting(packet.at, packet.at + packet.length, &greeting))
        db_protocol_violated(&protocol->base, "does not speak version 10 of the MySQL protocol");
    VALUE fields[] = {
        rb_utf8_str_new((const char *)greeting.version.at, (long)greeting.version.length),
        UINT2NUM(greeting.thread),
        ULL2NUM(greeting.capabilities),
        rb_str_new((const char *)greeting.scramble, MYSQL_SCRAMBLE),
        rb_str_new((const char *)greeting.plugin.at, (long)greeting.plugin.length),
        greeting.mariadb ? Qtrue : Qfalse,
    };
    return rb_ary_new_from_values(6, fields);
}

/* @api private protocol.greeting -> [version, thread, capabilities, scramble, plugin, mariadb] or an error */
static VALUE greeting(VALUE self)
{
    return mysql_exchange_with(self, greeting_body, Qnil, Qnil);
}

static VALUE write_body(struct db_exchange *exchange)
{
    struct mysql_protocol *protocol = exchange->protocol;
    VALUE payload = exchange->arguments[0];
    StringValue(payload);
    size_t length = (size_t)RSTRING_LEN(payload);
    if (length >= MYSQL_LARGEST_PACKET) rb_raise(rb_eArgError, "a login packet cannot have %zu bytes", length);
    struct stream *stream = stream_of(protocol->base.stream);
    uint8_t header[MYSQL_HEADER];
    mysql_put_header(header, length, protocol->sequence++);
    stream_append(stream, header, MYSQL_HEADER);
    stream_append(stream, RSTRING_PTR(payload), length);
    stream_flush(stream);
    RB_GC_GUARD(payload);
    return Qnil;
}

/* @api private protocol.write_packet(payload), during the login. */
static VALUE write_packet(VALUE self, VALUE payload)
{
    return mysql_exchange_with(self, write_body, payload, Qnil);
}

static VALUE read_body(struct db_exchange *exchange)
{
    struct mysql_protocol *protocol = exchange->protocol;
    struct mysql_span packet = mysql_packet(protocol);
    if (mysql_reply(packet.at, packet.at + packet.length) == MYSQL_REPLY_ERROR)
        return mysql_error_value(protocol, packet);
    return rb_str_new((const char *)packet.at, (long)packet.length);
}

/* @api private protocol.read_packet -> String or an error, during the login. */
static VALUE read_packet(VALUE self)
{
    return mysql_exchange_with(self, read_body, Qnil, Qnil);
}

void mysql_login_define(void)
{
    rb_define_method(mysql_cProtocol, "greeting", greeting, 0);
    rb_define_method(mysql_cProtocol, "write_packet", write_packet, 1);
    rb_define_method(mysql_cProtocol, "read_packet", read_packet, 0);
}
