// One receive that does not wait, for code that reads and for code that writes.
#include "stream/internals.h"

#include "loop/trace_io.h"
#include "os/fork.h"
#include "os/poll_at_once.h"
#include "os/socket_io.h"

#include <errno.h>

static VALUE eUnexpectedEnd, eBufferLimitExceeded;

ssize_t stream_receive(struct stream *stream, uint8_t *bytes, size_t length, size_t room)
{
    struct stream_buffer *in = &stream->in;
    uint8_t *spare = room ? buffer_room(in, room) : NULL;
    size_t spare_length = room ? buffer_free_room(in) : 0;
    stream->statistics.receives++;
    ssize_t count;
    if (!NIL_P(stream->tls)) {
        HEDDLE_ASSERT(length == 0); // other threads run meanwhile
        count = tls_receive(stream, spare_length);
    } else {
        count = length ? io_receive_two(stream->descriptor, bytes, length, spare, spare_length)
                       : io_receive(stream->descriptor, spare, spare_length);
    }
    trace_io_of_thread(stream->descriptor, count, false);
    if (count > 0) {
        stream->statistics.received += (uint64_t)count;
        stream->bytes_since_wait += (size_t)count;
        if (NIL_P(stream->tls)) stream->likely_empty = (size_t)count < length + spare_length;
        if (NIL_P(stream->tls) && (size_t)count > length) in->end += (size_t)count - length;
        // A peer that fills the buffer probably has more to send.
        if (!length && (size_t)count == spare_length && in->capacity < BUFFER_KEEP) buffer_room(in, in->capacity);
    } else if (count == 0) {
        if (stream->state == STREAM_OPEN) stream_change(stream, STREAM_ENDED);
    } else if (count == -EAGAIN) {
        stream->likely_empty = true;
    }
    return count;
}

void stream_end_early(struct stream *stream)
{
    stream_poison(stream, "the peer closed the connection in the middle of a reply");
    rb_raise(eUnexpectedEnd, "%" PRIsVALUE " closed the connection in the middle of a reply", stream->peer);
}

void stream_refuse_more(struct stream *stream, size_t limit)
{
    stream_poison(stream, "the peer sent more than the limit");
    rb_raise(eBufferLimitExceeded,
             "%" PRIsVALUE " sent more than the limit of %zu bytes: raise the limit (limit:, "
             "buffer_limit:), or read in pieces",
             stream->peer, limit);
}

bool stream_healthy(struct stream *stream)
{
    if (stream->state != STREAM_OPEN || stream->owed || stream->busy[SIDE_READ] || stream->busy[SIDE_WRITE])
        return false;
    if (stream->forks != fork_count() || buffer_used(&stream->in) || buffer_used(&stream->out)) return false;
    if (stream_socket_gone(stream)) return false;
    struct pollfd now = {.fd = stream->descriptor, .events = POLLIN};
    stream->statistics.polls++;
    if (NIL_P(stream->tls)) return poll_at_once(&now, 1) == 0;
    // TLS sends its own records at any time, such as session tickets.
    if (!tls_pending(stream) && poll_at_once(&now, 1) == 0) return true;
    return stream_receive(stream, NULL, 0, 1) == -EAGAIN;
}

void stream_receiving_define(void)
{
    eUnexpectedEnd = rb_const_get(heddle_module, rb_intern("UnexpectedEnd"));
    eBufferLimitExceeded = rb_const_get(heddle_module, rb_intern("BufferLimitExceeded"));
    rb_gc_register_mark_object(eUnexpectedEnd);
    rb_gc_register_mark_object(eBufferLimitExceeded);
}
