// The methods of Heddle::Stream for exchanges: a request and its replies.
#include "stream/internals.h"

/*
 * call-seq: stream.owed -> Integer
 *
 * The number of replies that the peer still has to send.
 */
static VALUE owed(VALUE self)
{
    return UINT2NUM(stream_get(self)->owed);
}

static unsigned replies_of(VALUE number)
{
    if (NIL_P(number)) return 1;
    long replies = NUM2LONG(number);
    if (replies < 0 || replies > INT_MAX) rb_raise(rb_eArgError, "%ld is not a valid number of replies", replies);
    return (unsigned)replies;
}

/*
 * call-seq: stream.expect(replies = 1) -> Integer
 *
 * The peer owes +replies+ more replies from now on; see #exchange.
 */
static VALUE expect(int argc, VALUE *argv, VALUE self)
{
    rb_check_arity(argc, 0, 1);
    struct stream *stream = stream_of(self);
    stream_expect(stream, replies_of(argc ? argv[0] : Qnil));
    return UINT2NUM(stream->owed);
}

/*
 * call-seq: stream.replied(replies = 1) -> Integer
 *
 * +replies+ replies were read completely. Raises ArgumentError for more than are owed.
 */
static VALUE replied(int argc, VALUE *argv, VALUE self)
{
    rb_check_arity(argc, 0, 1);
    struct stream *stream = stream_get(self);
    stream_replied(stream, replies_of(argc ? argv[0] : Qnil));
    return UINT2NUM(stream->owed);
}

struct exchange {
    VALUE self;
    struct stream *stream;
    VALUE exchanging; // before
    deadline_t until; // before
    unsigned owed;    // before
    unsigned replies;
    bool complete;
};

static VALUE run_exchange(VALUE argument)
{
    struct exchange *exchange = (struct exchange *)argument;
    stream_expect(exchange->stream, exchange->replies);
    VALUE value = rb_yield(exchange->self);
    exchange->complete = true;
    return value;
}

static VALUE exchange_methods_end(VALUE argument)
{
    const struct exchange *exchange = (const struct exchange *)argument;
    struct stream *stream = exchange->stream;
    stream->until = exchange->until;
    stream_refer(stream, &stream->exchanging, exchange->exchanging);
    if (exchange->complete) {
        // The exchange's own replies have been read. Replies that #expect announced within it, and #replied did not
        // take back, are still to come.
        bool more = stream->owed > exchange->owed && stream->owed - exchange->owed > exchange->replies;
        stream->owed = more ? stream->owed - exchange->replies : exchange->owed;
    } else {
        stream_poison(stream, "an exchange was left unfinished");
    }
    return Qnil;
}

/*
 * call-seq: stream.exchange(replies = 1, timeout: nil) { |stream| ... } -> object
 *
 * A request and its replies: the block writes, reads all +replies+, and its value is returned. All waits together may
 * take +timeout+ seconds. If the block ends in any other way (an error, a cancellation, Thread#raise, throw, break),
 * the stream is closed, because the remaining bytes would be taken for the reply to the next request. The exchange
 * counts its own replies. Replies that the block announces with #expect, and does not take back with #replied, are owed
 * after the exchange.
 *
 * Raises Heddle::StreamBusy, before anything is sent, while another fiber is in an exchange. A fiber may begin another
 * exchange within its own.
 */
static VALUE exchange(int argc, VALUE *argv, VALUE self)
{
    VALUE replies, options, timeout = Qnil;
    static ID keywords[1];
    if (!keywords[0]) keywords[0] = rb_intern("timeout");
    rb_scan_args(argc, argv, "01:", &replies, &options);
    if (!NIL_P(options) && rb_get_kwargs(options, keywords, 0, 1, &timeout) && timeout == Qundef) timeout = Qnil;
    rb_need_block();
    unsigned count = replies_of(replies);
    int64_t span = deadline_span(timeout);
    struct stream *stream = stream_of(self);
    VALUE exchanging = stream_exchange(stream);
    deadline_t before = stream->until;
    if (span != DEADLINE_NEVER) {
        deadline_t until = deadline_after(deadline_now(), span);
        if (until < before) stream->until = until;
    }
    struct exchange exchange = {.self = self,
                                .stream = stream,
                                .exchanging = exchanging,
                                .until = before,
                                .owed = stream->owed,
                                .replies = count};
    return rb_ensure(run_exchange, (VALUE)&exchange, exchange_methods_end, (VALUE)&exchange);
}

void stream_exchanges_define(VALUE klass)
{
    rb_define_method(klass, "owed", owed, 0);
    rb_define_method(klass, "expect", expect, -1);
    rb_define_method(klass, "replied", replied, -1);
    rb_define_method(klass, "exchange", exchange, -1);
}
