#include "db/protocol.h"

#include "db/connection.h"
#include "os/fork.h"
#include "scope/deadline_scope.h"

VALUE db_cProtocol;

// ---- the object

// Never used for an object of its own: the types of layers have it as their parent.
const rb_data_type_t db_protocol_type = {
    .wrap_struct_name = "Heddle::DB::Protocol",
    .flags = RUBY_TYPED_FREE_IMMEDIATELY,
};

struct db_protocol *db_protocol_of(VALUE self)
{
    return rb_check_typeddata(self, &db_protocol_type);
}

void db_protocol_init(struct db_protocol *protocol)
{
    protocol->stream = Qnil;
    protocol->span = DEADLINE_NEVER;
    protocol->pending_closes = pending_closes_new();
}

void db_protocol_references(struct db_protocol *protocol, reference_function *each)
{
    each(&protocol->stream);
}

void db_protocol_release(struct db_protocol *protocol)
{
    pending_closes_abandon(protocol->pending_closes);
}

void db_protocol_open(struct db_protocol *protocol, VALUE stream)
{
    stream_of(stream);
    protocol->stream = stream;
    protocol->born = fork_count();
}

void db_protocol_forget_statements(struct db_protocol *protocol)
{
    struct pending_closes *fresh = pending_closes_new();
    pending_closes_abandon(protocol->pending_closes);
    protocol->pending_closes = fresh;
}

// ---- errors

static VALUE peer_of(const struct db_protocol *protocol)
{
    return rb_funcall(protocol->stream, rb_intern("peer"), 0);
}

void db_protocol_violated(struct db_protocol *protocol, const char *what)
{
    VALUE peer = peer_of(protocol);
    stream_poison(stream_of(protocol->stream), "the server broke the protocol");
    rb_raise(rb_path2class("Heddle::DB::ProtocolError"), "%" PRIsVALUE " %s; the connection is closed", peer, what);
}

// ---- fork

bool db_protocol_forked(const struct db_protocol *protocol)
{
    return protocol->born != fork_count();
}

bool db_protocol_is_forked(VALUE protocol)
{
    return db_protocol_forked(db_protocol_of(protocol));
}

bool db_protocol_is_closed(VALUE protocol)
{
    const struct db_protocol *closed = db_protocol_of(protocol);
    return db_protocol_forked(closed) || stream_is_closed(closed->stream);
}

static void db_discard(struct db_protocol *protocol)
{
    protocol->state = DB_PROTOCOL_IDLE; // a fiber or thread of the parent runs the exchange
    if (!stream_is_closed(protocol->stream))
        stream_poison(stream_of(protocol->stream), "the connection belongs to the parent process");
}

RBIMPL_ATTR_NORETURN()
static void refuse_child(struct db_protocol *protocol)
{
    VALUE peer = peer_of(protocol);
    db_discard(protocol);
    rb_raise(rb_path2class("Heddle::DB::ConnectionLost"),
             "this connection to %" PRIsVALUE " belongs to the parent process, and is closed in this one: "
             "connect again in the child, or use a Heddle::DB::Pool, which does that by itself",
             peer);
}

void db_protocol_check_process(struct db_protocol *protocol)
{
    if (db_protocol_forked(protocol)) refuse_child(protocol);
}

// ---- exchanges

void db_protocol_requested(struct db_protocol *protocol, struct stream *stream, uint32_t replies)
{
    stream_expect(stream, replies);
    protocol->owed += replies;
    protocol->requested += replies;
    protocol->closes = 0; // they are sent before the requests
}

void db_protocol_replied(struct db_protocol *protocol, struct stream *stream)
{
    protocol->owed--;
    stream_replied(stream, 1);
}

void db_protocol_consume(struct db_protocol *protocol, struct stream *stream)
{
    if (protocol->pending) stream_consume(stream, protocol->pending);
    protocol->pending = 0;
}

void db_protocol_take_left(struct db_protocol *protocol, struct stream *stream, VALUE bytes)
{
    enum { PIECE = 64 << 10 };
    while (protocol->left) {
        size_t wanted = protocol->left < PIECE ? protocol->left : PIECE, count;
        const uint8_t *p = stream_need(stream, wanted);
        stream_buffered(stream, &count);
        if (count > protocol->left) count = protocol->left;
        if (!NIL_P(bytes)) rb_str_cat(bytes, (const char *)p, (long)count);
        stream_consume(stream, count);
        protocol->left -= count;
    }
}

VALUE db_protocol_take(struct db_protocol *protocol, struct stream *stream, size_t length)
{
    if (!protocol->shared) {
        bool resumable = stream_set_resumable(stream, false); // half of this message would be lost
        VALUE bytes = stream_take(stream, length);
        stream_set_resumable(stream, resumable);
        return bytes;
    }
    VALUE bytes = rb_str_buf_new(0);
    protocol->left = length;
    db_protocol_take_left(protocol, stream, bytes);
    return bytes;
}

// An exception has interrupted the code that was to read the rest of the interrupted reply.
RBIMPL_ATTR_NORETURN()
static void refuse_unfinished(struct db_protocol *protocol, struct stream *stream)
{
    VALUE peer = peer_of(protocol);
    stream_poison(stream, "a query was interrupted, and so was the end of it");
    rb_raise(rb_path2class("Heddle::DB::ConnectionLost"),
             "a query on this connection to %" PRIsVALUE " was interrupted, and so was the end of it; the connection "
             "is closed, and nothing was sent",
             peer);
}

void db_protocol_check_answered(struct db_protocol *protocol)
{
    if (protocol->owed) refuse_unfinished(protocol, stream_of(protocol->stream));
}

void db_exchange_begin(struct db_exchange *exchange, struct db_protocol *protocol)
{
    db_protocol_check_process(protocol);
    if (protocol->state == DB_PROTOCOL_IN_EXCHANGE)
        rb_raise(rb_path2class("Heddle::DB::Busy"),
                 "another fiber or thread is in the middle of a query on this connection: give each its own "
                 "(Heddle::DB::Pool), or let them take turns");
    struct stream *stream = stream_of(protocol->stream);
    if (protocol->state == DB_PROTOCOL_INTERRUPTED && !exchange->resumes) refuse_unfinished(protocol, stream);
    if (exchange->resumes && protocol->state != DB_PROTOCOL_INTERRUPTED)
        rb_raise(rb_path2class("Heddle::DB::Busy"), "no query on this connection was interrupted");
    if (!protocol->owed && !exchange->resumes && !exchange->unasked) deadline_refuse_late();
    exchange->protocol = protocol;
    protocol->state = DB_PROTOCOL_IN_EXCHANGE;
    protocol->pending = 0;
    if (protocol->span == DEADLINE_NEVER) return;
    exchange->until = deadline_after(deadline_now(), protocol->span);
    exchange->before = stream_bound(stream, exchange->until);
    if (exchange->before < exchange->until) stream_bound(stream, exchange->until = exchange->before);
    exchange->bounded = true;
}

static VALUE db_run_body(VALUE argument)
{
    struct db_exchange *exchange = (struct db_exchange *)argument;
    VALUE result = exchange->body(exchange);
    exchange->complete = true;
    return result;
}

static VALUE protocol_end_exchange(VALUE argument)
{
    struct db_exchange *exchange = (struct db_exchange *)argument;
    struct db_protocol *protocol = exchange->protocol;
    protocol->state = DB_PROTOCOL_IDLE;
    if (!stream_is_closed(protocol->stream)) {
        struct stream *stream = stream_of(protocol->stream);
        db_protocol_consume(protocol, stream);
        if (exchange->bounded) stream_bound(stream, exchange->before);
        bool broken = !exchange->complete && !exchange->unsent && !protocol->shared;
        if (broken && stream_kept_open(stream)) protocol->state = DB_PROTOCOL_INTERRUPTED;
        stream_set_resumable(stream, false);
        if (broken && protocol->state == DB_PROTOCOL_IDLE) stream_poison(stream, "an exchange was left unfinished");
    }
    protocol->pending = 0;
    exchange->ended(exchange);
    return Qnil;
}

VALUE db_exchange_run(struct db_exchange *exchange, void (*ended)(struct db_exchange *exchange))
{
    exchange->ended = ended;
    return rb_ensure(db_run_body, (VALUE)exchange, protocol_end_exchange, (VALUE)exchange);
}

// ---- statements of several tasks

void db_protocol_share(VALUE self, bool shared)
{
    struct db_protocol *protocol = db_protocol_of(self);
    protocol->shared = shared;
    if (!stream_is_closed(protocol->stream)) stream_set_shared(stream_of(protocol->stream), shared);
}

void db_protocol_interrupt(VALUE self)
{
    struct db_protocol *protocol = db_protocol_of(self);
    if (protocol->owed != 1 || stream_is_closed(protocol->stream)) return;
    const struct stream *stream = stream_of(protocol->stream);
    if (stream_sent(stream) == stream_written(stream)) protocol->state = DB_PROTOCOL_INTERRUPTED;
}

// ---- methods

/*
 * call-seq: protocol.timeout = seconds
 *
 * The time for each exchange.
 */
static VALUE set_timeout(VALUE self, VALUE seconds)
{
    db_protocol_of(self)->span = deadline_span(seconds);
    return seconds;
}

/* call-seq: protocol.stream -> Heddle::Stream */
static VALUE stream(VALUE self)
{
    return db_protocol_of(self)->stream;
}

/*
 * call-seq: protocol.busy? -> true or false
 *
 * Returns whether a fiber or thread is in the middle of an exchange.
 */
static VALUE busy_p(VALUE self)
{
    return db_protocol_of(self)->state == DB_PROTOCOL_IN_EXCHANGE ? Qtrue : Qfalse;
}

/*
 * call-seq: protocol.owed -> Integer
 *
 * The number of outstanding replies.
 */
static VALUE owed(VALUE self)
{
    return UINT2NUM(db_protocol_of(self)->owed);
}

/*
 * call-seq: protocol.owes_to_nobody? -> true or false
 *
 * Returns whether the outstanding replies are those of tasks that shared the connection and have left.
 */
static VALUE owes_to_nobody_p(VALUE self)
{
    return db_protocol_of(self)->owes_to_nobody ? Qtrue : Qfalse;
}

/*
 * call-seq: protocol.forked? -> true or false
 *
 * Returns whether the connection belongs to the process that this one was forked from.
 */
static VALUE forked_p(VALUE self)
{
    return db_protocol_forked(db_protocol_of(self)) ? Qtrue : Qfalse;
}

/*
 * call-seq: protocol.closed? -> true or false
 *
 * Returns whether the connection is closed, or belongs to a parent process.
 */
static VALUE db_closed_p(VALUE self)
{
    return db_protocol_is_closed(self) ? Qtrue : Qfalse;
}

/*
 * call-seq: protocol.unfinished? -> true or false
 *
 * Returns whether the last exchange was interrupted in a way that the rest of its reply can still be read.
 */
static VALUE unfinished_p(VALUE self)
{
    return db_protocol_of(self)->state == DB_PROTOCOL_INTERRUPTED ? Qtrue : Qfalse;
}

/* @api private protocol.discard: closes the socket in this process, a child of fork, without sending anything to the
   server. */
static VALUE db_protocol_discard(VALUE self)
{
    db_discard(db_protocol_of(self));
    return Qnil;
}

/*
 * call-seq: protocol.closes -> Integer
 *
 * The number of statements that are closed here and not yet on the server.
 */
static VALUE closes(VALUE self)
{
    const struct db_protocol *protocol = db_protocol_of(self);
    return UINT2NUM(protocol->closes + pending_closes_count(protocol->pending_closes));
}

void Init_heddle_db(void)
{
    VALUE db = rb_define_module_under(heddle_module, "DB");
    VALUE protocol = rb_define_class_under(db, "Protocol", rb_cObject);
    rb_gc_register_mark_object(protocol);
    rb_undef_alloc_func(protocol);
    rb_undef_method(protocol, "initialize_copy");
    rb_define_method(protocol, "timeout=", set_timeout, 1);
    rb_define_method(protocol, "stream", stream, 0);
    rb_define_method(protocol, "busy?", busy_p, 0);
    rb_define_method(protocol, "owed", owed, 0);
    rb_define_method(protocol, "owes_to_nobody?", owes_to_nobody_p, 0);
    rb_define_method(protocol, "forked?", forked_p, 0);
    rb_define_method(protocol, "closed?", db_closed_p, 0);
    rb_define_method(protocol, "unfinished?", unfinished_p, 0);
    rb_define_method(protocol, "discard", db_protocol_discard, 0);
    rb_define_method(protocol, "closes", closes, 0);
    db_cProtocol = protocol;
    db_connection_define(db);
}
