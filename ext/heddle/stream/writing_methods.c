// The methods of Heddle::Stream that write.
#include "stream/internals.h"

#include "shims.h"

#include <errno.h>
#include <poll.h>

static ID id_exception, id_close_write;
static VALUE sym_wait_readable, sym_wait_writable;

static struct stream *begin(VALUE self)
{
    struct stream *stream = stream_get(self);
    stream_enter(stream, SIDE_WRITE);
    return stream;
}

struct writing {
    struct stream *stream;
    struct stream_limit limit; // one for all of it
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
    if (writing->begun && !writing->complete) stream_poison(writing->stream, "a message was written in part");
    return Qnil;
}

static VALUE write_all(int argc, VALUE *argv, VALUE self, bool flush)
{
    // All are converted first: code of their own may raise, and half a message is none.
    VALUE holder;
    VALUE *strings = ALLOCV_N(VALUE, holder, argc + 1);
    for (int i = 0; i < argc; i++)
        strings[i] = rb_obj_as_string(argv[i]);
    struct stream *stream = begin(self);
    struct writing writing = {
        .stream = stream, .limit = stream_write_limit(stream), .strings = strings, .count = argc, .flush = flush};
    if (argc == 1) { // which is gathered or sent by itself: whole, or the stream is closed
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
 * Gathers the bytes, to be sent by #flush, before the next read that has to wait, or when there are 64 KiB. A String of 32
 * KiB and more is sent at once, from where it is, and with #sync all are. Returns how many bytes there are.
 *
 * Raises Heddle::DeadlineExceeded when they have to be sent and are not within the write timeout, Errno::EPIPE and the like.
 * The stream is closed then.
 */
static VALUE write_strings(int argc, VALUE *argv, VALUE self)
{
    return write_all(argc, argv, self, false);
}

/* call-seq: stream << object -> self. As #write. */
static VALUE append(VALUE self, VALUE object)
{
    write_all(1, &object, self, false);
    return self;
}

/*
 * call-seq: stream.syswrite(string) -> Integer
 *
 * Sends the bytes at once, all of them.
 */
static VALUE syswrite(VALUE self, VALUE object)
{
    return write_all(1, &object, self, true);
}

/*
 * call-seq: stream.flush -> self
 *
 * Sends what was written, and what rides. When the peer takes no more, what it sends is read meanwhile and kept for the next
 * reads, so that two that only write do not wait for each other for ever.
 *
 * Raises Heddle::DeadlineExceeded, Heddle::BufferLimitExceeded, Errno::EPIPE and the like; the stream is closed then.
 */
static VALUE flush(VALUE self)
{
    stream_flush(begin(self));
    return self;
}

/*
 * call-seq: stream.queue_no_reply(string) -> self
 *
 * A message without a reply that nobody waits for (the close of a prepared statement): it rides in front of the next one and
 * costs no packet. Never bytes that others must see, as those of a quiet set: these are lost when the stream is closed, and
 * may lie here for long. Beyond 64 KiB or 128 messages they are sent at once.
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
 * Sends as many of the bytes as the peer takes now, and returns how many. When it takes none: raises
 * IO::EAGAINWaitWritable, or with <tt>exception: false</tt> answers <tt>:wait_writable</tt>.
 */
static VALUE write_nonblock(int argc, VALUE *argv, VALUE self)
{
    VALUE string, options;
    rb_scan_args(argc, argv, "1:", &string, &options);
    string = rb_obj_as_string(string);
    struct stream *stream = begin(self);
    if (RSTRING_LEN(string) == 0) return INT2FIX(0);
    stream_check_time(stream, SIDE_WRITE);
    if (!NIL_P(stream->tls)) string = rb_str_new_frozen(string); // others run in between, and may change theirs
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
 * Until the socket takes bytes; nil when that takes more than +timeout+ seconds. The time of an #exchange bounds it too.
 */
static VALUE wait_writable(int argc, VALUE *argv, VALUE self)
{
    rb_check_arity(argc, 0, 1);
    int64_t span = deadline_span(argc ? argv[0] : Qnil);
    struct stream *stream = begin(self);
    deadline_t until = span == DEADLINE_NEVER ? span : deadline_after(deadline_now(), span);
    return stream_wait_until(stream, SIDE_WRITE, POLLOUT, until) ? self : Qnil;
}

/*
 * call-seq: stream.close_write -> nil
 *
 * Sends what was written, and tells the peer that nothing more comes. IOError with TLS: Ruby's openssl cannot say goodbye and
 * go on reading, and without a goodbye the peer must take it for an attack.
 */
static VALUE close_write(VALUE self)
{
    struct stream *stream = begin(self);
    if (!NIL_P(stream->tls))
        rb_raise(rb_eIOError, "TLS to %" PRIsVALUE " cannot be closed for writing alone: close the stream",
                 stream->peer);
    stream_flush(stream);
    rb_funcall(stream->io, id_close_write, 0);
    return Qnil;
}

void stream_define_writing(VALUE klass)
{
    id_exception = rb_intern("exception");
    id_close_write = rb_intern("close_write");
    sym_wait_readable = ID2SYM(rb_intern("wait_readable"));
    sym_wait_writable = ID2SYM(rb_intern("wait_writable"));
    rb_define_method(klass, "write", write_strings, -1);
    rb_define_method(klass, "<<", append, 1);
    rb_define_method(klass, "syswrite", syswrite, 1);
    rb_define_method(klass, "flush", flush, 0);
    rb_define_method(klass, "queue_no_reply", queue_no_reply, 1);
    rb_define_method(klass, "write_nonblock", write_nonblock, -1);
    rb_define_method(klass, "wait_writable", wait_writable, -1);
    rb_define_method(klass, "close_write", close_write, 0);
}
