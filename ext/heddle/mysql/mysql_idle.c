// Closes that ride with the next request, of a connection that has no next request: after a second without one they are
// sent, so that the server does not keep for hours what nobody needs. By the thread that watches over deadlines, which is
// there for as long as something waits: it sends what the socket takes at once, holding the GVL, so that the connection's
// owner sees it done or not done. Not over TLS, whose records take Ruby's code to write.
#include "mysql/mysql_link.h"

#include "scope/thread_scope.h"

static const int64_t SECOND = 1000000000;

static VALUE watched; // Links: kept until their closes are gone

static VALUE send_closes(VALUE self)
{
    struct mysql_link *link = mysql_link_of(self);
    struct stream *stream = stream_of(link->stream); // raises when it is closed: nothing is left to do then
    // No more than that: of too many the stream would send some, and wait.
    while (link->pending_closes->count && link->closes < MYSQL_CLOSES_WAITING)
        mysql_close_later(link, link->pending_closes->ids[--link->pending_closes->count]);
    if (!stream_send_piggybacked(stream)) return Qfalse;
    link->closes = 0;
    RB_GC_GUARD(self);
    return Qtrue;
}

// Whether it is to be looked at again.
static bool look(VALUE self, deadline_t now)
{
    struct mysql_link *link = mysql_link_of(self);
    if (mysql_forked(link) || stream_is_closed(link->stream)) return false;
    // The end of the exchange, or of the one that reads what is owed, has it watched again. Whoever asked may never come back.
    if (link->busy || link->owed) return false;
    if (link->exchanges != link->seen) {
        link->seen = link->exchanges;
        link->idle_since = now;
        return true;
    }
    if (now - link->idle_since < SECOND) return true;
    int state = 0;
    bool sent = rb_protect(send_closes, self, &state) == Qtrue;
    if (state) rb_set_errinfo(Qnil);
    return !state && sent && link->pending_closes->count;
}

static bool look_at_all(deadline_t now)
{
    for (long i = RARRAY_LEN(watched) - 1; i >= 0; i--) {
        VALUE self = RARRAY_AREF(watched, i);
        if (look(self, now)) continue;
        mysql_link_of(self)->watched = false;
        rb_ary_delete_at(watched, i);
    }
    return RARRAY_LEN(watched) > 0;
}

static VALUE watch(VALUE self)
{
    struct mysql_link *link = mysql_link_of(self);
    thread_scope_periodic(look_at_all);
    rb_ary_push(watched, self);
    link->seen = link->exchanges;
    link->idle_since = deadline_now();
    return Qnil;
}

void mysql_flush_when_idle(VALUE self)
{
    struct mysql_link *link = mysql_link_of(self);
    if (link->watched || !(link->closes || link->pending_closes->count) || link->owed) return;
    link->watched = true;
    int state = 0;
    rb_protect(watch, self, &state);
    if (!state) return;
    // No memory, or no thread: they go on waiting for the next request, whose answer this must not cost.
    rb_set_errinfo(Qnil);
    link->watched = false;
}

void mysql_idle_init(void)
{
    watched = rb_obj_hide(rb_ary_new());
    rb_gc_register_address(&watched);
}
