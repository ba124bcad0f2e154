// The writing methods of Heddle::Stream.
#include "stream/internals.h"

#include "shims.h"

#include <errno.h>
#include <poll.h>

static ID id_exception, id_close_write;
static VALUE sym_wait_readable, sym_wait_writable;

static struct stream *writing_methods_begin(VALUE self)
{
    struct stream *stream = stream_get(self);
    stream_enter(stream, SIDE_WRITE);
    return stream;
}

struct writing {
    struct stream *stream;
    struct stream_limit limit; // one limit for all strings
    const VALUE *strings;
    int count, begun;
    bool flush, complete;
    size_t total;
};

static VALUE write_body(VALUE argument)
{
    struct writing *writing = (struct writing *)argument;
    struct stream *stream = writing->stream;
    for (int i = 0; i < writing->count; i++) {
        size_t length = (size_t)RSTRING_LEN(writing->strings[i]);
        stream_write_string(stream, writing->strings[i], &writing->limit);
        writing->total += length;
        writing->begun++;
    }
    if (writing->flush || stream->sync) stream_flush_within(stream, &writing->limit);
    writing->complete = true;
    return Qnil;
}

static VALUE write_end(VALUE argument)
{
    const struct writing *writing = (const struct writing *)argument;
    if (writing->begun && !writing->complete) stream_poison(writing->stream, "a message was only partly written");
    return Qnil;
}

static VALUE write_all(int argc, VALUE *argv, VALUE self, bool flush)
{
    // Converts all objects first: their to_s may raise, and half a message must not be written.
    VALUE holder;
    VALUE *strings = ALLOCV_N(VALUE, holder, argc + 1);
    for (int i = 0; i < argc; i++)
        strings[i] = rb_obj_as_string(argv[i]);
    struct stream *stream = writing_methods_begin(self);
    struct writing writing = {
        .stream = stream, .limit = stream_write_limit(stream), .strings = strings, .count = argc, .flush = flush};
    if (argc == 1) { // gathered or sent as a whole, or the stream is closed
        write_body((VALUE)&writing);
    } else {
        rb_ensure(write_body, (VALUE)&writing, write_end, (VALUE)&writing);
    }
    ALLOCV_END(holder);
    return SIZET2NUM(writing.total);
}

/*
 * call-seq: stream.write(string, ...) -> Integer
 *
 * Gathers the bytes. They are sent by #flush, before the next read that has to wait, or at 64 KiB. A String of 32 KiB
 * or more is sent at once, without a copy; with #sync every write is sent at once. Returns the number of bytes written.
 *
 * If the bytes must be sent: raises Heddle::DeadlineExceeded when that takes longer than the write timeout,
 * Errno::EPIPE and similar errors. The stream is then closed.
 */
static VALUE write_strings(int argc, VALUE *argv, VALUE self)
{
    return write_all(argc, argv, self, false);
}

/*
 * call-seq: stream << object -> self
 *
 * Like #write.
 */
static VALUE writing_methods_append(VALUE self, VALUE object)
{
    write_all(1, &object, self, false);
    return self;
}

/*
 * call-seq: stream.syswrite(string) -> Integer
 *
 * Sends all the bytes at once.
 */
static VALUE syswrite(VALUE self, VALUE object)
{
    return write_all(1, &object, self, true);
}

/*
 * call-seq: stream.flush -> self
 *
 * Sends the written bytes and those of #queue_no_reply. If the peer takes no more, its bytes are read meanwhile and
 * kept for later reads, so that two sides that only write do not block each other for ever.
 *
 * Raises Heddle::DeadlineExceeded, Heddle::BufferLimitExceeded, Errno::EPIPE and similar errors; the stream is then
 * closed.
 */
static VALUE flush(VALUE self)
{
    stream_flush(writing_methods_begin(self));
    return self;
}

/*
 * call-seq: stream.queue_no_reply(string) -> self
 *
 * Queues a message without a reply that nobody waits for (the close of a prepared statement): it is sent before the
 * next message and costs no packet. Not for bytes that others must see, such as a quiet set: they are lost when the
 * stream is closed, and may stay queued for long. Beyond 64 KiB or 128 messages they are sent at once.
 */
static VALUE queue_no_reply(VALUE self, VALUE string)
{
    StringValue(string);
    stream_queue_no_reply(stream_of(self), RSTRING_PTR(string), (size_t)RSTRING_LEN(string));
    RB_GC_GUARD(string);
    return self;
}

/*
 * call-seq: stream.write_nonblock(string, exception: true) -> Integer or :wait_writable
 *
 * Sends as many of the bytes as the socket takes now, and returns their number. If it takes none, raises
 * IO::EAGAINWaitWritable, or with <tt>exception: false</tt> returns <tt>:wait_writable</tt>.
 */
static VALUE write_nonblock(int argc, VALUE *argv, VALUE self)
{
    VALUE string, options;
    rb_scan_args(argc, argv, "1:", &string, &options);
    string = rb_obj_as_string(string);
    struct stream *stream = writing_methods_begin(self);
    if (RSTRING_LEN(string) == 0) return INT2FIX(0);
    stream_check_time(stream, SIDE_WRITE);
    if (!NIL_P(stream->tls)) string = rb_str_new_frozen(string); // other code runs meanwhile, and may change it
    ssize_t count = stream_try_writing(stream, (const uint8_t *)RSTRING_PTR(string), (size_t)RSTRING_LEN(string));
    RB_GC_GUARD(string);
    if (count != -EAGAIN) return SSIZET2NUM(count);
    bool readable = stream->tls_wants[SIDE_WRITE] == POLLIN;
    if (!NIL_P(options) && rb_hash_lookup2(options, ID2SYM(id_exception), Qtrue) == Qfalse)
        return readable ? sym_wait_readable : sym_wait_writable;
    rb_readwrite_syserr_fail(readable ? RB_IO_WAIT_READABLE : RB_IO_WAIT_WRITABLE, EAGAIN, "write would block");
}

/*
 * call-seq: stream.wait_writable(timeout = nil) -> self or nil
 *
 * Waits until the socket takes bytes; returns nil if that takes more than +timeout+ seconds. The time of an #exchange
 * applies, too.
 */
static VALUE wait_writable(int argc, VALUE *argv, VALUE self)
{
    rb_check_arity(argc, 0, 1);
    int64_t span = deadline_span(argc ? argv[0] : Qnil);
    struct stream *stream = writing_methods_begin(self);
    deadline_t until = deadline_in(span);
    return stream_wait_until(stream, SIDE_WRITE, POLLOUT, until) ? self : Qnil;
}

/*
 * call-seq: stream.close_write -> nil
 *
 * Sends the written bytes, and tells the peer that no more will come. Raises IOError with TLS: Ruby's openssl cannot
 * send the closing alert and continue to read, and without that alert the peer must assume an attack.
 */
static VALUE close_write(VALUE self)
{
    struct stream *stream = writing_methods_begin(self);
    if (!NIL_P(stream->tls))
        rb_raise(rb_eIOError, "cannot close only the writing side of TLS to %" PRIsVALUE ": close the stream",
                 stream->peer);
    stream_flush(stream);
    rb_funcall(stream->io, id_close_write, 0);
    return Qnil;
}

void stream_writing_define(VALUE klass)
{
    id_exception = rb_intern("exception");
    id_close_write = rb_intern("close_write");
    sym_wait_readable = ID2SYM(rb_intern("wait_readable"));
    sym_wait_writable = ID2SYM(rb_intern("wait_writable"));
    rb_define_method(klass, "write", write_strings, -1);
    rb_define_method(klass, "<<", writing_methods_append, 1);
    rb_define_method(klass, "syswrite", syswrite, 1);
    rb_define_method(klass, "flush", flush, 0);
    rb_define_method(klass, "queue_no_reply", queue_no_reply, 1);
    rb_define_method(klass, "write_nonblock", write_nonblock, -1);
    rb_define_method(klass, "wait_writable", wait_writable, -1);
    rb_define_method(klass, "close_write", close_write, 0);
}
