// Closes of statements are piggybacked on the next request; how many may wait for it, lib/heddle/db/connection.rb
// decides. If a connection makes no request for a second, its closes are sent anyway, so that the server does not keep
// unused statements for hours. The helper thread for deadlines does that, and runs as long as closes wait. It sends
// what the socket takes at once and holds the GVL, so that the connection's owner sees the closes either sent or not
// sent. Not over TLS, whose records are written by Ruby code.
#include "db/mysql/protocol.h"

#include "os/deadline.h"
#include "scope/thread_scope.h"

static const int64_t SECOND = 1000000000;

static VALUE watched; // Connections whose closes are pending

static VALUE send_closes(VALUE self)
{
    struct mysql_protocol *protocol = mysql_protocol_of(self);
    struct stream *stream =
        stream_of(protocol->base.stream); // raises if the stream is closed: nothing is left to do then
    // At most MYSQL_CLOSES_AT_ONCE: with more, the stream would send some of them and wait.
    for (uint32_t id;
         protocol->base.closes < MYSQL_CLOSES_AT_ONCE && pending_closes_take(protocol->base.pending_closes, &id);)
        mysql_queue_close(protocol, id);
    if (!stream_send_piggybacked(stream)) return Qfalse;
    // Closes that the socket did not take still count: with more in the queue, the stream would wait here.
    if (!stream_piggybacked(stream)) protocol->base.closes = 0;
    RB_GC_GUARD(self);
    return Qtrue;
}

// Sends the closes if the connection is idle. Returns whether to check it again.
static bool send_if_idle(VALUE self, deadline_t now)
{
    struct mysql_protocol *protocol = mysql_protocol_of(self);
    if (db_protocol_forked(&protocol->base) || stream_is_closed(protocol->base.stream)) return false;
    // The end of the exchange, or of the one that reads the outstanding reply, watches the connection again. Its user
    // may never come back.
    if (protocol->base.state == DB_PROTOCOL_IN_EXCHANGE || protocol->base.owed) return false;
    if (protocol->exchanges != protocol->seen) {
        protocol->seen = protocol->exchanges;
        protocol->idle_since = now;
        return true;
    }
    if (now - protocol->idle_since < SECOND) return true;
    int state = 0;
    bool sent = rb_protect(send_closes, self, &state) == Qtrue;
    if (state) rb_set_errinfo(Qnil);
    // Again after a second: more are pending than are sent at once, or the socket took none.
    return !state && sent && (protocol->base.closes || pending_closes_count(protocol->base.pending_closes));
}

static bool check_all(deadline_t now)
{
    for (long i = RARRAY_LEN(watched) - 1; i >= 0; i--) {
        VALUE self = RARRAY_AREF(watched, i);
        if (send_if_idle(self, now)) continue;
        mysql_protocol_of(self)->watched = false;
        rb_ary_delete_at(watched, i);
    }
    return RARRAY_LEN(watched) > 0;
}

static VALUE mysql_watch(VALUE self)
{
    struct mysql_protocol *protocol = mysql_protocol_of(self);
    thread_scope_periodic(check_all);
    rb_ary_push(watched, self);
    protocol->seen = protocol->exchanges;
    protocol->idle_since = deadline_now();
    return Qnil;
}

static bool no_helper(VALUE error)
{
    return is_exception(error) &&
           (RTEST(rb_obj_is_kind_of(error, rb_eNoMemError)) || RTEST(rb_obj_is_kind_of(error, rb_eThreadError)));
}

void mysql_flush_when_idle(VALUE self)
{
    struct mysql_protocol *protocol = mysql_protocol_of(self);
    if (deadline_simulated()) return; // the helper is a thread, which would run in real time
    if (protocol->watched || !(protocol->base.closes || pending_closes_count(protocol->base.pending_closes)) ||
        protocol->base.owed)
        return;
    protocol->watched = true;
    int state = 0;
    rb_protect(mysql_watch, self, &state);
    if (!state) return;
    protocol->watched = false;
    // No memory or no thread: the closes stay pending until the next request, and this exchange still returns its
    // result. Anything else is an interrupt of this thread, which starting the other one has let in.
    if (!no_helper(rb_errinfo())) rb_jump_tag(state);
    rb_set_errinfo(Qnil);
}

void mysql_idle_define(void)
{
    watched = rb_obj_hide(rb_ary_new());
    rb_gc_register_address(&watched);
}
