// The methods of Heddle::DB::PostgreSQL::Protocol that tell what is known of the session, and what the server says
// without being asked: notices and notifications.
#include "db/postgresql/session.h"

#include "os/budget.h"

// ---- settings and state

/* @api private protocol.open(stream, local): it talks on that stream from now on. */
static VALUE open_protocol(VALUE self, VALUE stream, VALUE local)
{
    struct postgresql_protocol *protocol = postgresql_protocol_of(self);
    db_protocol_open(&protocol->base, stream);
    protocol->local = RTEST(local);
    return self;
}

/* @api private protocol.textual = true or false. For libraries that read the server's texts themselves: all values come
 * as the server's text, and $1 is the only placeholder, so that ? is an operator. */
static VALUE set_textual(VALUE self, VALUE textual)
{
    postgresql_protocol_of(self)->textual = RTEST(textual);
    return textual;
}

/* @api private protocol.store_setting(name, value): what the server said while logging in */
static VALUE store_setting(VALUE self, VALUE name, VALUE value)
{
    StringValue(name);
    StringValue(value);
    postgresql_store_setting(postgresql_protocol_of(self), name, value);
    return self;
}

/* @api private protocol.backslashes? -> true or false. Whether they are active in '…' */
static VALUE backslashes_p(VALUE self)
{
    return postgresql_protocol_of(self)->backslashes ? Qtrue : Qfalse;
}

/* @api private protocol.local? -> true or false. Whether times are in the time zone of this process, not in UTC */
static VALUE local_p(VALUE self)
{
    return postgresql_protocol_of(self)->local ? Qtrue : Qfalse;
}

/* @api private protocol.textual? -> true or false */
static VALUE textual_p(VALUE self)
{
    return postgresql_protocol_of(self)->textual ? Qtrue : Qfalse;
}

bool postgresql_in_transaction(VALUE self)
{
    return postgresql_protocol_of(self)->transaction != PG_IDLE && !db_protocol_is_closed(self);
}

/* call-seq: protocol.in_transaction? -> true or false. As the server said last; false for a closed connection. */
static VALUE in_transaction_p(VALUE self)
{
    return postgresql_in_transaction(self) ? Qtrue : Qfalse;
}

/* call-seq: protocol.failed? -> true or false. The transaction can only be rolled back. */
static VALUE failed_p(VALUE self)
{
    return postgresql_protocol_of(self)->transaction == PG_FAILED ? Qtrue : Qfalse;
}

/* call-seq: protocol.suspended? -> true or false. Whether the portal that was executed last has more rows. */
static VALUE suspended_p(VALUE self)
{
    return postgresql_protocol_of(self)->state == POSTGRESQL_SUSPENDED ? Qtrue : Qfalse;
}

/* call-seq: protocol.settings -> Hash of String. What the server says of itself. */
static VALUE settings(VALUE self)
{
    return postgresql_protocol_of(self)->settings;
}

// ---- notices and notifications

static VALUE taken(VALUE *list)
{
    VALUE value = *list;
    *list = Qnil;
    return value;
}

/* call-seq: protocol.notices -> Array of Hash or nil. Those since the last call; their fields by their letters. */
static VALUE notices(VALUE self)
{
    return taken(&postgresql_protocol_of(self)->notices);
}

/* call-seq: protocol.notifications -> Array of [channel, payload, process] or nil. Those that came since the last call.
 * */
static VALUE notifications(VALUE self)
{
    return taken(&postgresql_protocol_of(self)->messages);
}

/* call-seq: protocol.notification -> [channel, payload, process] or nil. Takes the oldest that has come. Now and then
 * raises what a wait would raise: on a busy channel the next one is always there. */
static VALUE notification(VALUE self)
{
    struct postgresql_protocol *protocol = postgresql_protocol_of(self);
    if (NIL_P(protocol->messages) || !RARRAY_LEN(protocol->messages)) return Qnil;
    budget_spend(PG_HEADER); // other code may run
    return postgresql_take_notification(protocol);
}

/* call-seq: protocol.noticing = true or false. Whether notices are kept. */
static VALUE set_noticing(VALUE self, VALUE value)
{
    postgresql_protocol_of(self)->noticing = RTEST(value);
    return value;
}

static VALUE consume_input_body(struct db_exchange *exchange)
{
    static const char *const names[] = {"nothing", "part", "message", "gone"};
    exchange->unsent = true;
    return ID2SYM(rb_intern(names[postgresql_consume_input(exchange->protocol)]));
}

/* @api private protocol.consume_input -> :nothing, :part, :message or :gone. Keeps the notices and notifications that
 * have arrived, without waiting; :message is of another kind. */
static VALUE consume_input(VALUE self)
{
    struct db_exchange exchange = {.self = self, .body = consume_input_body, .unasked = true};
    return postgresql_exchange(&exchange);
}

/* @api private protocol.wait_for_more(seconds) -> true or false. Waits until more has arrived than what consume_input
 * left; seconds: nil for no limit. An exception leaves the connection as it was. */
static VALUE wait_for_more(VALUE self, VALUE seconds)
{
    int64_t span = deadline_span(seconds);
    struct postgresql_protocol *protocol = postgresql_protocol_of(self);
    struct stream *stream = stream_of(protocol->base.stream);
    budget_give_way_to_all(); // the server may send without end, so that no wait lets others run
    if (postgresql_has_message(protocol)) return Qtrue; // consume_input leaves what is too much for one call
    size_t buffered;
    stream_buffered(stream, &buffered);
    bool found = stream_wait_for_more(stream, buffered, span);
    RB_GC_GUARD(self);
    return found ? Qtrue : Qfalse;
}

void postgresql_session_define(void)
{
    VALUE protocol = postgresql_cProtocol;
    rb_define_method(protocol, "open", open_protocol, 2);
    rb_define_method(protocol, "textual=", set_textual, 1);
    rb_define_method(protocol, "textual?", textual_p, 0);
    rb_define_method(protocol, "local?", local_p, 0);
    rb_define_method(protocol, "store_setting", store_setting, 2);
    rb_define_method(protocol, "backslashes?", backslashes_p, 0);
    rb_define_method(protocol, "in_transaction?", in_transaction_p, 0);
    rb_define_method(protocol, "failed?", failed_p, 0);
    rb_define_method(protocol, "suspended?", suspended_p, 0);
    rb_define_method(protocol, "settings", settings, 0);
    rb_define_method(protocol, "notices", notices, 0);
    rb_define_method(protocol, "notifications", notifications, 0);
    rb_define_method(protocol, "notification", notification, 0);
    rb_define_method(protocol, "noticing=", set_noticing, 1);
    rb_define_method(protocol, "consume_input", consume_input, 0);
    rb_define_method(protocol, "wait_for_more", wait_for_more, 1);
}
