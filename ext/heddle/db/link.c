#include "db/link.h"

#include "db/connection.h"
#include "os/fork.h"
#include "scope/deadline_scope.h"

VALUE db_cLink;

// ---- the object

// Never used for an object of its own: the types of layers have it as their parent.
const rb_data_type_t db_link_type = {
    .wrap_struct_name = "Heddle::DB::Link",
    .flags = RUBY_TYPED_FREE_IMMEDIATELY,
};

static struct db_link *link_of(VALUE self)
{
    return rb_check_typeddata(self, &db_link_type);
}

void db_link_init(struct db_link *link)
{
    link->stream = Qnil;
    link->span = DEADLINE_NEVER;
    link->pending_closes = pending_closes_new();
}

void db_link_mark(const struct db_link *link)
{
    rb_gc_mark_movable(link->stream);
}

void db_link_compact(struct db_link *link)
{
    link->stream = rb_gc_location(link->stream);
}

void db_link_release(struct db_link *link)
{
    pending_closes_abandon(link->pending_closes);
}

void db_link_open(struct db_link *link, VALUE stream)
{
    stream_of(stream);
    link->stream = stream;
    link->born = fork_count();
}

void db_link_forget_statements(struct db_link *link)
{
    struct pending_closes *fresh = pending_closes_new();
    pending_closes_abandon(link->pending_closes);
    link->pending_closes = fresh;
}

// ---- errors

static VALUE peer_of(const struct db_link *link)
{
    return rb_funcall(link->stream, rb_intern("peer"), 0);
}

void db_link_violated(struct db_link *link, const char *what)
{
    VALUE peer = peer_of(link);
    stream_poison(stream_of(link->stream), "the server broke the protocol");
    rb_raise(rb_path2class("Heddle::DB::ProtocolError"), "%" PRIsVALUE " %s; the connection is closed", peer, what);
}

// ---- fork

bool db_link_forked(const struct db_link *link)
{
    return link->born != fork_count();
}

bool db_link_is_forked(VALUE link)
{
    return db_link_forked(link_of(link));
}

bool db_link_is_closed(VALUE link)
{
    const struct db_link *closed = link_of(link);
    return db_link_forked(closed) || stream_is_closed(closed->stream);
}

static void leave(struct db_link *link)
{
    link->state = DB_LINK_IDLE; // a fiber or thread of the parent runs the exchange
    if (!stream_is_closed(link->stream))
        stream_poison(stream_of(link->stream), "the connection belongs to the parent process");
}

RBIMPL_ATTR_NORETURN()
static void refuse_child(struct db_link *link)
{
    VALUE peer = peer_of(link);
    leave(link);
    rb_raise(rb_path2class("Heddle::DB::ConnectionLost"),
             "this connection to %" PRIsVALUE " belongs to the parent process, and is closed in this one: "
             "connect again in the child, or use a Heddle::DB::Pool, which does that by itself",
             peer);
}

void db_link_check_process(struct db_link *link)
{
    if (db_link_forked(link)) refuse_child(link);
}

// ---- exchanges

void db_link_requested(struct db_link *link, struct stream *stream, uint32_t replies)
{
    stream_expect(stream, replies);
    link->owed += replies;
    link->closes = 0; // they are sent before the requests
}

void db_link_replied(struct db_link *link, struct stream *stream)
{
    link->owed--;
    stream_replied(stream, 1);
}

void db_link_consume(struct db_link *link, struct stream *stream)
{
    if (link->pending) stream_consume(stream, link->pending);
    link->pending = 0;
}

// An exception has interrupted the code that was to read the rest of the interrupted reply.
RBIMPL_ATTR_NORETURN()
static void refuse_unfinished(struct db_link *link, struct stream *stream)
{
    VALUE peer = peer_of(link);
    stream_poison(stream, "a query was interrupted, and so was the end of it");
    rb_raise(rb_path2class("Heddle::DB::ConnectionLost"),
             "a query on this connection to %" PRIsVALUE " was interrupted, and so was the end of it; the connection "
             "is closed, and nothing was sent",
             peer);
}

void db_link_check_answered(struct db_link *link)
{
    if (link->owed) refuse_unfinished(link, stream_of(link->stream));
}

void db_exchange_begin(struct db_exchange *exchange, struct db_link *link)
{
    db_link_check_process(link);
    if (link->state == DB_LINK_IN_EXCHANGE)
        rb_raise(rb_path2class("Heddle::DB::Busy"),
                 "another fiber or thread is in the middle of a query on this connection: give each its own "
                 "(Heddle::DB::Pool), or let them take turns");
    struct stream *stream = stream_of(link->stream);
    if (link->state == DB_LINK_INTERRUPTED && !exchange->resumes) refuse_unfinished(link, stream);
    if (exchange->resumes && link->state != DB_LINK_INTERRUPTED)
        rb_raise(rb_path2class("Heddle::DB::Busy"), "no query on this connection was interrupted");
    if (!link->owed && !exchange->resumes && !exchange->unasked) deadline_refuse_late();
    exchange->link = link;
    link->state = DB_LINK_IN_EXCHANGE;
    link->pending = 0;
    if (link->span == DEADLINE_NEVER) return;
    exchange->until = deadline_after(deadline_now(), link->span);
    exchange->before = stream_bound(stream, exchange->until);
    if (exchange->before < exchange->until) stream_bound(stream, exchange->until = exchange->before);
    exchange->bounded = true;
}

static VALUE run_body(VALUE argument)
{
    struct db_exchange *exchange = (struct db_exchange *)argument;
    VALUE result = exchange->body(exchange);
    exchange->complete = true;
    return result;
}

static VALUE end_exchange(VALUE argument)
{
    struct db_exchange *exchange = (struct db_exchange *)argument;
    struct db_link *link = exchange->link;
    link->state = DB_LINK_IDLE;
    if (!stream_is_closed(link->stream)) {
        struct stream *stream = stream_of(link->stream);
        db_link_consume(link, stream);
        if (exchange->bounded) stream_bound(stream, exchange->before);
        bool broken = !exchange->complete && !exchange->unsent;
        if (broken && stream_kept_open(stream)) link->state = DB_LINK_INTERRUPTED;
        stream_set_resumable(stream, false);
        if (broken && link->state == DB_LINK_IDLE) stream_poison(stream, "an exchange was left unfinished");
    }
    link->pending = 0;
    exchange->ended(exchange);
    return Qnil;
}

VALUE db_exchange_run(struct db_exchange *exchange, void (*ended)(struct db_exchange *exchange))
{
    exchange->ended = ended;
    return rb_ensure(run_body, (VALUE)exchange, end_exchange, (VALUE)exchange);
}

// ---- methods

/*
 * call-seq: link.timeout = seconds
 *
 * The time for each exchange.
 */
static VALUE set_timeout(VALUE self, VALUE seconds)
{
    link_of(self)->span = deadline_span(seconds);
    return seconds;
}

/* call-seq: link.stream -> Heddle::Stream */
static VALUE stream(VALUE self)
{
    return link_of(self)->stream;
}

/*
 * call-seq: link.busy? -> true or false
 *
 * Returns whether a fiber or thread is in the middle of an exchange.
 */
static VALUE busy_p(VALUE self)
{
    return link_of(self)->state == DB_LINK_IN_EXCHANGE ? Qtrue : Qfalse;
}

/*
 * call-seq: link.owed -> Integer
 *
 * The number of outstanding replies.
 */
static VALUE owed(VALUE self)
{
    return UINT2NUM(link_of(self)->owed);
}

/*
 * call-seq: link.forked? -> true or false
 *
 * Returns whether the connection belongs to the process that this one was forked from.
 */
static VALUE forked_p(VALUE self)
{
    return db_link_forked(link_of(self)) ? Qtrue : Qfalse;
}

/*
 * call-seq: link.closed? -> true or false
 *
 * Returns whether the connection is closed, or belongs to a parent process.
 */
static VALUE closed_p(VALUE self)
{
    return db_link_is_closed(self) ? Qtrue : Qfalse;
}

/*
 * call-seq: link.unfinished? -> true or false
 *
 * Returns whether the last exchange was interrupted in a way that the rest of its reply can still be read.
 */
static VALUE unfinished_p(VALUE self)
{
    return link_of(self)->state == DB_LINK_INTERRUPTED ? Qtrue : Qfalse;
}

/* @api private link.leave: closes the socket in this process, a child of fork, without sending anything to the
   server. */
static VALUE leave_parent(VALUE self)
{
    leave(link_of(self));
    return Qnil;
}

/*
 * call-seq: link.closes -> Integer
 *
 * The number of statements that are closed here and not yet on the server.
 */
static VALUE closes(VALUE self)
{
    const struct db_link *link = link_of(self);
    return UINT2NUM(link->closes + pending_closes_count(link->pending_closes));
}

void Init_heddle_db(void)
{
    VALUE db = rb_define_module_under(heddle_module, "DB");
    VALUE link = rb_define_class_under(db, "Link", rb_cObject);
    rb_gc_register_mark_object(link);
    rb_undef_alloc_func(link);
    rb_undef_method(link, "initialize_copy");
    rb_define_method(link, "timeout=", set_timeout, 1);
    rb_define_method(link, "stream", stream, 0);
    rb_define_method(link, "busy?", busy_p, 0);
    rb_define_method(link, "owed", owed, 0);
    rb_define_method(link, "forked?", forked_p, 0);
    rb_define_method(link, "closed?", closed_p, 0);
    rb_define_method(link, "unfinished?", unfinished_p, 0);
    rb_define_method(link, "leave", leave_parent, 0);
    rb_define_method(link, "closes", closes, 0);
    db_cLink = link;
    db_connection_init(db);
}
