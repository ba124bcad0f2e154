#include "stream/internals.h"

#include "os/fork.h"
#include "shims.h"

static VALUE cStream;

// Nanoseconds that a close may take to send the rest of a stream without a write timeout.
static const int64_t LAST_SPAN = 5000000000;

// Takes the bytes that the IO's own buffer already holds.
static void take_over_buffer(struct stream *stream)
{
    rb_io_t *file;
    GetOpenFile(stream->io, file);
    while (rb_io_read_pending(file)) {
        VALUE bytes = rb_funcall(stream->io, rb_intern("read_nonblock"), 1, INT2FIX(BUFFER_FIRST));
        buffer_append(&stream->in, RSTRING_PTR(bytes), (size_t)RSTRING_LEN(bytes));
        RB_GC_GUARD(bytes);
    }
}

/* @api private stream.attach(io, peer, buffer_limit): from now on the stream reads from and writes to that IO. */
static VALUE attach(VALUE self, VALUE io, VALUE peer, VALUE buffer_limit)
{
    struct stream *stream = stream_get(self);
    if (stream->state != STREAM_NEW) rb_raise(rb_eArgError, "this stream is already initialized");
    size_t limit = NUM2SIZET(buffer_limit);
    if (limit == 0) rb_raise(rb_eArgError, "buffer_limit must be a number of bytes above 0");
    io = rb_io_get_io(io);
    if (rb_io_get_write_io(io) != io)
        rb_raise(rb_eArgError,
                 "%" PRIsVALUE
                 " reads from one pipe and writes to another, but a stream needs a single file descriptor: "
                 "give each its own stream, or use a UNIXSocket.pair",
                 rb_inspect(io));
    stream_refer(stream, &stream->peer, rb_str_new_frozen(StringValue(peer)));
    stream->descriptor = rb_io_descriptor(io);
    stream_refer(stream, &stream->io, io);
    stream->buffer_limit = limit;
    stream->forks = fork_count();
    stream->likely_empty = true;
    stream_change(stream, STREAM_OPEN);
    take_over_buffer(stream);
    return self;
}

struct securing {
    struct stream *stream;
    VALUE exchanging; // before
};

static VALUE end_securing(VALUE argument)
{
    const struct securing *securing = (const struct securing *)argument;
    securing->stream->securing = false;
    stream_refer(securing->stream, &securing->stream->exchanging, securing->exchanging);
    return Qnil;
}

/*
 * @api private stream.secure { ... }: the block starts TLS. No other fiber may read or write meanwhile: its plain bytes
 *   would go into the middle of the handshake.
 */
static VALUE secure(VALUE self)
{
    struct stream *stream = stream_of(self);
    if (!NIL_P(stream->tls))
        rb_raise(rb_eIOError,
                 "TLS has already begun with %" PRIsVALUE ": start_tls once, or not at all after connecting with tls:",
                 stream->peer);
    stream_enter(stream, SIDE_READ);
    stream_enter(stream, SIDE_WRITE);
    struct securing securing = {.stream = stream, .exchanging = stream_exchange(stream)};
    stream->securing = true;
    return rb_ensure(rb_yield, self, end_securing, (VALUE)&securing);
}

/* @api private stream.attach_tls(ssl_socket): from now on all bytes go through this socket. */
static VALUE attach_tls(VALUE self, VALUE tls)
{
    struct stream *stream = stream_of(self);
    stream_tls_attached();
    stream_refer(stream, &stream->tls, tls);
    return tls;
}

/* @api private stream.tls -> OpenSSL::SSL::SSLSocket or nil */
static VALUE tls(VALUE self)
{
    return stream_get(self)->tls;
}

// ---- settings

static VALUE span_value(int64_t span)
{
    return span == DEADLINE_NEVER ? Qnil : DBL2NUM((double)span / 1e9);
}

/*
 * call-seq: stream.read_timeout -> Float or nil
 *
 * The seconds that one reading operation may take in all.
 */
static VALUE read_timeout(VALUE self)
{
    return span_value(stream_get(self)->read_span);
}

/*
 * call-seq: stream.read_timeout = seconds
 *
 * nil: no limit except the deadline in force.
 */
static VALUE set_read_timeout(VALUE self, VALUE seconds)
{
    stream_get(self)->read_span = deadline_span(seconds);
    return seconds;
}

/*
 * call-seq: stream.write_timeout -> Float or nil
 *
 * The seconds that one sending operation may take in all.
 */
static VALUE write_timeout(VALUE self)
{
    return span_value(stream_get(self)->write_span);
}

/*
 * call-seq: stream.write_timeout = seconds
 *
 * nil: no limit except the deadline in force.
 */
static VALUE set_write_timeout(VALUE self, VALUE seconds)
{
    stream_get(self)->write_span = deadline_span(seconds);
    return seconds;
}

/*
 * call-seq: stream.sync -> true or false
 *
 * Returns whether each write is sent at once.
 */
static VALUE sync_p(VALUE self)
{
    return stream_of(self)->sync ? Qtrue : Qfalse;
}

/*
 * call-seq: stream.sync = boolean
 *
 * Bytes that were written before are sent with the next write.
 */
static VALUE set_sync(VALUE self, VALUE wanted)
{
    stream_of(self)->sync = RTEST(wanted);
    return wanted;
}

/*
 * call-seq: stream.peer -> String
 *
 * The address of the peer, for messages.
 */
static VALUE peer(VALUE self)
{
    return stream_get(self)->peer;
}

/*
 * call-seq: stream.to_io -> IO
 *
 * The socket itself, for IO.select and similar methods. Written bytes are sent first, so that code which bypasses the
 * stream does not wait for the reply to a request that was never sent. The socket does not know of bytes that the
 * stream has already received (#buffered).
 */
static VALUE to_io(VALUE self)
{
    struct stream *stream = stream_of(self);
    if (buffer_used(&stream->out) && !stream->busy[SIDE_WRITE]) {
        stream_enter(stream, SIDE_WRITE);
        struct stream_limit limit = stream_write_limit(stream);
        stream_send_written(stream, &limit);
    }
    return stream->io;
}

// ---- life

static VALUE send_last(VALUE self)
{
    struct stream *stream = stream_get(self);
    if (stream->forks != fork_count() || stream->busy[SIDE_WRITE] || !buffer_used(&stream->out)) return Qnil;
    stream_check_socket(stream);
    if (stream->write_span == DEADLINE_NEVER) stream->write_span = LAST_SPAN;
    struct stream_limit limit = stream_write_limit(stream);
    stream_send_written(stream, &limit);
    return Qnil;
}

static VALUE shut(VALUE self)
{
    struct stream *stream = stream_get(self);
    bool ours = stream->forks == fork_count();
    if (stream_is_open(stream)) stream_shut(stream, ours && !stream->busy[SIDE_READ] && !stream->busy[SIDE_WRITE]);
    return Qnil;
}

/*
 * call-seq: stream.close -> nil
 *
 * Sends the written bytes, within the write timeout or 5 s without one, and closes the socket; TLS sends its closing
 * alert. Bytes of #queue_no_reply that are not sent yet are dropped. Fibers that wait in the stream get IOError. A
 * second close does nothing.
 */
static VALUE close_stream(VALUE self)
{
    struct stream *stream = stream_get(self);
    if (!stream_is_open(stream)) return Qnil;
    return rb_ensure(send_last, self, shut, self);
}

/*
 * call-seq: stream.closed? -> true or false
 *
 * Returns whether the stream is closed, be it by an interrupted operation.
 */
static VALUE stream_class_closed_p(VALUE self)
{
    return stream_is_open(stream_get(self)) ? Qfalse : Qtrue;
}

/*
 * call-seq: stream.poison -> nil
 *
 * Closes the stream at once and drops unsent bytes: the peer's next bytes might answer another request. Later
 * operations raise Heddle::StreamClosed.
 */
static VALUE poison(VALUE self)
{
    stream_poison(stream_get(self), "its user poisoned it");
    return Qnil;
}

static VALUE unhealthy(VALUE unused, VALUE error)
{
    (void)unused, (void)error;
    return Qfalse;
}

static VALUE check_health(VALUE self)
{
    return stream_healthy(stream_get(self)) ? Qtrue : Qfalse;
}

/*
 * call-seq: stream.healthy? -> true or false
 *
 * Returns whether the stream can be handed to another user: it is open, no reply is owed, nothing is left to be read or
 * sent, no fiber waits in it, the peer has neither closed it nor sent anything unexpected, and it was not opened before
 * a fork. Takes one system call and never waits.
 */
static VALUE healthy_p(VALUE self)
{
    // A timeout or a Thread#raise is not rescued.
    return rb_rescue2(check_health, self, unhealthy, Qnil, rb_eIOError, rb_eSystemCallError, stream_tls_error(),
                      (VALUE)0);
}

// ---- numbers

static void stream_class_put(VALUE hash, const char *name, uint64_t number)
{
    rb_hash_aset(hash, ID2SYM(rb_intern(name)), ULL2NUM(number));
}

/*
 * call-seq: stream.statistics -> Hash
 *
 * Counts since the stream was opened: +system_calls+ (+sends+ and +receives+, which with TLS are calls of its library;
 * +polls+ to wait in plain threads, because a scheduler counts its own; +looks+ are those polls that kept the GVL),
 * +bytes_sent+, +bytes_received+, +flushes+, +waits+ for the peer.
 */
static VALUE stream_class_statistics(VALUE self)
{
    const struct stream *stream = stream_get(self);
    const struct stream_statistics *numbers = &stream->statistics;
    VALUE hash = rb_hash_new();
    stream_class_put(hash, "system_calls", numbers->sends + numbers->receives + numbers->polls);
    stream_class_put(hash, "sends", numbers->sends);
    stream_class_put(hash, "receives", numbers->receives);
    stream_class_put(hash, "polls", numbers->polls);
    stream_class_put(hash, "looks", numbers->looks);
    stream_class_put(hash, "waits", numbers->waits);
    stream_class_put(hash, "flushes", numbers->flushes);
    stream_class_put(hash, "bytes_sent", numbers->sent);
    stream_class_put(hash, "bytes_received", numbers->received);
    return hash;
}

/*
 * call-seq: stream.buffered -> Integer
 *
 * The number of bytes that have arrived and were not read yet.
 */
static VALUE buffered(VALUE self)
{
    return SIZET2NUM(buffer_used(&stream_get(self)->in));
}

/*
 * call-seq: stream.capacity -> Integer
 *
 * The bytes of memory that the stream's buffers take.
 */
static VALUE capacity(VALUE self)
{
    const struct stream *stream = stream_get(self);
    return SIZET2NUM(stream->in.capacity + stream->out.capacity + stream->piggybacked.capacity);
}

void Init_heddle_stream(void)
{
    cStream = rb_define_class_under(heddle_module, "Stream", rb_cObject);
    rb_gc_register_mark_object(cStream);
    rb_define_alloc_func(cStream, stream_allocate);
    rb_undef_method(cStream, "initialize_copy");
    stream_life_define();
    stream_receiving_define();
    tls_define();

    rb_define_private_method(cStream, "attach", attach, 3);
    rb_define_private_method(cStream, "secure", secure, 0);
    rb_define_private_method(cStream, "attach_tls", attach_tls, 1);
    rb_define_method(cStream, "tls", tls, 0);
    rb_define_method(cStream, "read_timeout", read_timeout, 0);
    rb_define_method(cStream, "read_timeout=", set_read_timeout, 1);
    rb_define_method(cStream, "write_timeout", write_timeout, 0);
    rb_define_method(cStream, "write_timeout=", set_write_timeout, 1);
    rb_define_method(cStream, "sync", sync_p, 0);
    rb_define_method(cStream, "sync=", set_sync, 1);
    rb_define_method(cStream, "peer", peer, 0);
    rb_define_method(cStream, "to_io", to_io, 0);
    rb_define_method(cStream, "close", close_stream, 0);
    rb_define_method(cStream, "closed?", stream_class_closed_p, 0);
    rb_define_method(cStream, "poison", poison, 0);
    rb_define_method(cStream, "healthy?", healthy_p, 0);
    rb_define_method(cStream, "statistics", stream_class_statistics, 0);
    rb_define_method(cStream, "buffered", buffered, 0);
    rb_define_method(cStream, "capacity", capacity, 0);
    stream_reading_define(cStream);
    stream_writing_define(cStream);
    stream_exchanges_define(cStream);
}
