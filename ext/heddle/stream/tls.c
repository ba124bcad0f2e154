// TLS by OpenSSL::SSL::SSLSocket: reads and writes that do not wait.
#include "stream/internals.h"

#include <errno.h>
#include <poll.h>

static ID id_read_nonblock, id_write_nonblock, id_pending;
static VALUE without_exception; // {exception: false}
static VALUE sym_wait_readable;

struct tls_call {
    struct stream *stream;
    const uint8_t *bytes; // bytes to send
    size_t length;
    VALUE string;
    VALUE result;
};

static VALUE call_read(VALUE argument)
{
    struct tls_call *call = (struct tls_call *)argument;
    VALUE arguments[3] = {SIZET2NUM(call->length), call->string, without_exception};
    struct stream *stream = call->stream;
    VALUE tls = stream->tls;
    call->result = rb_funcallv_kw(tls, id_read_nonblock, 3, arguments, RB_PASS_KEYWORDS);
    if (NIL_P(call->result) || SYMBOL_P(call->result)) return Qnil;
    // Within this call, because without memory the bytes would be lost both to TLS and to us.
    buffer_append(&stream->in, RSTRING_PTR(call->string), (size_t)RSTRING_LEN(call->string));
    if (stream->tls_session_kept) return Qnil;
    stream->tls_session_kept = true;
    rb_funcall(rb_path_to_class(rb_str_new_cstr("Heddle::Stream::TLS")), rb_intern("keep_session"), 1, tls);
    return Qnil;
}

static VALUE call_write(VALUE argument)
{
    struct tls_call *call = (struct tls_call *)argument;
    call->string = rb_str_new((const char *)call->bytes, (long)call->length);
    VALUE arguments[2] = {call->string, without_exception};
    call->result = rb_funcallv_kw(call->stream->tls, id_write_nonblock, 2, arguments, RB_PASS_KEYWORDS);
    return Qnil;
}

static VALUE call_pending(VALUE argument)
{
    struct tls_call *call = (struct tls_call *)argument;
    call->result = rb_funcall(call->stream->tls, id_pending, 0);
    return Qnil;
}

// OpenSSL may want either direction for either operation.
static ssize_t wait_first(struct stream *stream, enum stream_side side, VALUE symbol)
{
    stream->tls_wants[side] = symbol == sym_wait_readable ? POLLIN : POLLOUT;
    return -EAGAIN;
}

ssize_t tls_receive(struct stream *stream, size_t length)
{
    if (NIL_P(stream->scratch)) stream_refer(stream, &stream->scratch, rb_str_buf_new(TLS_RECORD));
    struct tls_call call = {.stream = stream, .string = stream->scratch};
    call.length = length < TLS_RECORD ? length : TLS_RECORD;
    stream_guarded(stream, SIDE_READ, GUARD_CALL, call_read, (VALUE)&call);
    if (NIL_P(call.result)) return 0;
    if (SYMBOL_P(call.result)) return wait_first(stream, SIDE_READ, call.result);
    size_t count = (size_t)RSTRING_LEN(call.string);
    RB_GC_GUARD(call.string);
    return (ssize_t)count;
}

ssize_t tls_transmit(struct stream *stream, const uint8_t *bytes, size_t length)
{
    struct tls_call call = {.stream = stream, .bytes = bytes, .length = length < TLS_RECORD ? length : TLS_RECORD};
    stream_guarded(stream, SIDE_WRITE, GUARD_CALL, call_write, (VALUE)&call);
    if (SYMBOL_P(call.result)) return wait_first(stream, SIDE_WRITE, call.result);
    RB_GC_GUARD(call.string);
    return (ssize_t)NUM2SIZET(call.result);
}

bool tls_pending(struct stream *stream)
{
    struct tls_call call = {.stream = stream};
    stream_guarded(stream, SIDE_READ, GUARD_CALL, call_pending, (VALUE)&call);
    return NUM2INT(call.result) > 0;
}

void tls_define(void)
{
    id_read_nonblock = rb_intern("read_nonblock");
    id_write_nonblock = rb_intern("write_nonblock");
    id_pending = rb_intern("pending");
    sym_wait_readable = ID2SYM(rb_intern("wait_readable"));
    without_exception = rb_hash_new();
    rb_hash_aset(without_exception, ID2SYM(rb_intern("exception")), Qfalse);
    rb_gc_register_mark_object(without_exception);
    OBJ_FREEZE(without_exception);
}
