// Writes: bytes are kept until they fill the buffer, or somebody reads or flushes.
#include "stream/internals.h"

#include "loop/trace_io.h"
#include "os/budget.h"
#include "os/fork.h"
#include "os/socket_io.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

enum {
    FLUSH_AT = 64 << 10,          // more gathered bytes than this are sent
    UNCOPIED = 32 << 10,          // a String of this size is sent without a copy
    PIGGYBACKED_BYTES = 64 << 10, // most bytes that may wait for the next message
    PIGGYBACKED_COUNT = 128,
    RECORDS_A_WAIT = 16 // TLS records to read while written bytes cannot be sent
};

// ---- gathering

static void append_piggybacked(struct stream *stream)
{
    if (!buffer_used(&stream->piggybacked)) return;
    buffer_append(&stream->out, buffer_front(&stream->piggybacked), buffer_used(&stream->piggybacked));
    buffer_consume(&stream->piggybacked, buffer_used(&stream->piggybacked));
    stream->piggybacked_count = 0;
}

// Piggybacked bytes go before a message, never into one.
static void begin_message(struct stream *stream)
{
    if (stream->author) return;
    stream_enter(stream, SIDE_WRITE);
    append_piggybacked(stream);
    stream_refer(stream, &stream->author, rb_fiber_current());
}

// A fiber that flushes, or waits for a reply, has finished its message. A message that another fiber has begun
// continues, even if its first half is sent already. Returns whether no message is partly written now.
bool stream_end_message(struct stream *stream)
{
    if (!stream->author) return true;
    if (stream->author != rb_fiber_current() && RTEST(rb_fiber_alive_p(stream->author))) return false;
    stream->author = 0;
    return true;
}

uint8_t *stream_reserve(struct stream *stream, size_t count)
{
    begin_message(stream);
    return buffer_room(&stream->out, count);
}

void stream_commit(struct stream *stream, size_t count)
{
    HEDDLE_ASSERT(count <= buffer_free_room(&stream->out));
    stream->out.end += count;
}

void stream_append(struct stream *stream, const void *bytes, size_t length)
{
    begin_message(stream);
    buffer_append(&stream->out, bytes, length);
}

// ---- sending

// Sends the gathered bytes, and after them `length` more. Returns how many of the latter were taken; -EAGAIN if nothing
// was taken at all.
static ssize_t transmit(struct stream *stream, const uint8_t *bytes, size_t length)
{
    struct stream_buffer *out = &stream->out;
    size_t used = buffer_used(out);
    stream->statistics.sends++;
    ssize_t count;
    if (!NIL_P(stream->tls)) {
        count = used ? tls_transmit(stream, buffer_front(out), used) : tls_transmit(stream, bytes, length);
    } else if (used && length) {
        count = io_transmit_two(stream->descriptor, buffer_front(out), used, bytes, length);
    } else {
        count = used ? io_transmit(stream->descriptor, buffer_front(out), used)
                     : io_transmit(stream->descriptor, bytes, length);
    }
    trace_io_of_thread(stream->descriptor, count, true);
    if (count < 0) return count;
    stream->statistics.sent += (uint64_t)count;
    stream->bytes_since_wait += (size_t)count;
    size_t of_buffer = (size_t)count < used ? (size_t)count : used;
    if (of_buffer) buffer_consume(out, of_buffer);
    return count - (ssize_t)of_buffer;
}

// Receives what the peer has sent meanwhile. TLS returns one record at a time: several records cost one wait. Returns
// false on failure.
static bool receive_meanwhile(struct stream *stream)
{
    ssize_t count;
    int records = NIL_P(stream->tls) ? 1 : RECORDS_A_WAIT;
    stream->busy[SIDE_WRITE] = true; // TLS lets other code run: nobody may write in between
    do {
        count = stream_receive(stream, NULL, 0, FLUSH_AT);
    } while (count > 0 && --records > 0);
    stream->busy[SIDE_WRITE] = false; // if the receive raises, the stream is closed
    return count >= 0 || count == -EAGAIN;
}

// The peer takes no more bytes. It may be waiting until its replies are read, so this reads meanwhile, unless another
// fiber reads.
static void wait_to_send(struct stream *stream, struct stream_limit *limit)
{
    for (;;) {
        short wanted = stream->tls_wants[SIDE_WRITE] ? stream->tls_wants[SIDE_WRITE] : POLLOUT;
        bool reads = !stream->busy[SIDE_READ] && stream->state != STREAM_ENDED;
        if (reads && buffer_used(&stream->in) >= stream->buffer_limit) stream_refuse_more(stream, stream->buffer_limit);
        short found = stream_wait(stream, SIDE_WRITE, (short)(wanted | (reads ? POLLIN : 0)), limit);
        if (found & POLLIN && !stream->busy[SIDE_READ] && stream->state != STREAM_ENDED) {
            // An error of the peer shows in the next send, or else in the next read.
            if (!receive_meanwhile(stream)) break;
        }
        if (found & wanted) break;
    }
    stream->tls_wants[SIDE_WRITE] = 0;
}

struct sending {
    struct stream *stream;
    struct stream_limit *limit;
    VALUE tail; // a String to send after the gathered bytes, or 0
    size_t offset, length;
    bool complete;
};

// Sends once or waits; returns whether everything is sent.
static bool send_some(struct sending *sending)
{
    struct stream *stream = sending->stream;
    // Read again each time: the String may move during a wait.
    const uint8_t *bytes = sending->tail ? (const uint8_t *)RSTRING_PTR(sending->tail) + sending->offset : NULL;
    ssize_t count = transmit(stream, bytes, sending->length - sending->offset);
    if (count < 0 && count != -EAGAIN) stream_fail(stream, (int)-count, "writing to");
    if (count > 0) sending->offset += (size_t)count;
    sending->complete = !buffer_used(&stream->out) && sending->offset == sending->length;
    if (sending->complete) return true;
    if (count >= 0 && !NIL_P(stream->tls)) { // one record at a time
        stream_spend(stream, SIDE_WRITE, sending->limit);
    } else {
        wait_to_send(stream, sending->limit);
    }
    return false;
}

static VALUE send_rest(VALUE argument)
{
    struct sending *sending = (struct sending *)argument;
    while (!send_some(sending)) {
    }
    return Qnil;
}

static VALUE sending_end(VALUE argument)
{
    const struct sending *sending = (const struct sending *)argument;
    // Also when there was no memory for the bytes that the peer sent meanwhile.
    if (!sending->complete) stream_poison(sending->stream, "some of the written bytes could not be sent");
    return Qnil;
}

static void send_all(struct stream *stream, VALUE tail, size_t offset, struct stream_limit *limit)
{
    struct sending sending = {.stream = stream, .limit = limit, .tail = tail, .offset = offset};
    sending.length = tail ? (size_t)RSTRING_LEN(tail) : 0;
    if (!buffer_used(&stream->out) && !sending.length) return;
    stream_spend(stream, SIDE_WRITE, limit);
    stream->statistics.flushes++;
    rb_ensure(send_rest, (VALUE)&sending, sending_end, (VALUE)&sending);
    // The reply has not arrived yet.
    stream->likely_empty = true;
    RB_GC_GUARD(tail);
}

void stream_send_written(struct stream *stream, struct stream_limit *limit)
{
    stream_end_message(stream);
    send_all(stream, 0, 0, limit);
}

void stream_flush_within(struct stream *stream, struct stream_limit *limit)
{
    stream_enter(stream, SIDE_WRITE);
    if (stream_end_message(stream)) append_piggybacked(stream);
    send_all(stream, 0, 0, limit);
}

void stream_flush(struct stream *stream)
{
    struct stream_limit limit = stream_write_limit(stream);
    stream_flush_within(stream, &limit);
}

void stream_queue_no_reply(struct stream *stream, const void *bytes, size_t length)
{
    stream_adopt(stream);
    if (buffer_used(&stream->piggybacked) + length > stream->buffer_limit)
        rb_raise(rb_const_get(heddle_module, rb_intern("BufferLimitExceeded")),
                 "cannot queue %zu more bytes before the next message to %" PRIsVALUE
                 ": %zu are queued, and the limit is %zu (buffer_limit:): flush, to end the message that was begun",
                 length, stream->peer, buffer_used(&stream->piggybacked), stream->buffer_limit);
    buffer_append(&stream->piggybacked, bytes, length);
    stream->piggybacked_count++;
    bool too_much =
        buffer_used(&stream->piggybacked) > PIGGYBACKED_BYTES || stream->piggybacked_count > PIGGYBACKED_COUNT;
    if (too_much && !stream->author && !stream->busy[SIDE_WRITE]) stream_flush(stream);
}

bool stream_send_piggybacked(struct stream *stream)
{
    stream_adopt(stream);
    bool at_rest = !stream->author && !stream->busy[SIDE_WRITE] && !buffer_used(&stream->out);
    if (!at_rest || !NIL_P(stream->tls)) return false;
    size_t length = buffer_used(&stream->piggybacked);
    if (!length) return true;
    stream->statistics.sends++;
    ssize_t count = io_transmit(stream->descriptor, buffer_front(&stream->piggybacked), length);
    if (count == -EAGAIN) return true; // the next message takes the bytes along
    if (count < 0) return false;
    stream->statistics.sent += (uint64_t)count;
    buffer_consume(&stream->piggybacked, (size_t)count); // the rest of a split message comes first in the next one
    if ((size_t)count == length) stream->piggybacked_count = 0;
    return true;
}

size_t stream_piggybacked(const struct stream *stream)
{
    return buffer_used(&stream->piggybacked);
}

bool stream_send_first(struct stream *stream)
{
    if (stream->busy[SIDE_WRITE]) return false;
    bool message = stream->author != 0;
    stream_end_message(stream);
    if (!buffer_used(&stream->out)) return false;
    if (message) stream->statistics.flushes++;
    bool read = stream->busy[SIDE_READ]; // by another fiber, which waits
    do {
        stream->busy[SIDE_READ] = read || !NIL_P(stream->tls); // TLS lets other code run: nobody may begin to read
        ssize_t count = transmit(stream, NULL, 0);
        stream->busy[SIDE_READ] = read; // if transmit raises, the stream is closed
        if (count == -EAGAIN) return true;
        if (count < 0) stream_fail(stream, (int)-count, "writing to");
    } while (buffer_used(&stream->out));
    stream->tls_wants[SIDE_WRITE] = 0;
    stream->likely_empty = true;
    return false;
}

bool stream_gather(void)
{
    unsigned forks = fork_count();
    budget_give_way();
    return forks == fork_count();
}

void stream_send_now(struct stream *stream)
{
    stream_check_open(stream);
    stream_send_first(stream);
}

void stream_check_late(const struct stream *stream, deadline_t until)
{
    if (until == DEADLINE_NEVER || deadline_now() < until) return;
    rb_raise(heddle_eDeadlineExceeded, "the time limit of a request passed among others that were sent to %" PRIsVALUE,
             stream->peer);
}

uint64_t stream_written(const struct stream *stream)
{
    return stream->statistics.sent + buffer_used(&stream->out);
}

uint64_t stream_sent(const struct stream *stream)
{
    return stream->statistics.sent;
}

ssize_t stream_try_writing(struct stream *stream, const uint8_t *bytes, size_t length)
{
    struct stream_limit limit = {.span = DEADLINE_NEVER, .side = SIDE_WRITE};
    stream_spend(stream, SIDE_WRITE, &limit);
    begin_message(stream);
    ssize_t count;
    do {
        count = transmit(stream, bytes, length);
    } while (count == 0); // so far only gathered bytes were sent
    if (count < 0 && count != -EAGAIN) stream_fail(stream, (int)-count, "writing to");
    if (count > 0) stream->likely_empty = true;
    return count;
}

void stream_write_string(struct stream *stream, VALUE string, struct stream_limit *limit)
{
    stream_enter(stream, SIDE_WRITE);
    size_t length = (size_t)RSTRING_LEN(string);
    if (length >= UNCOPIED) {
        string = rb_str_new_frozen(string); // no other code can change it during a wait
        begin_message(stream);
        // With TLS, the last record of the gathered bytes is filled up from the String.
        size_t used = buffer_used(&stream->out);
        size_t first = NIL_P(stream->tls) || !used ? 0 : (TLS_RECORD - used % TLS_RECORD) % TLS_RECORD;
        buffer_append(&stream->out, RSTRING_PTR(string), first);
        send_all(stream, string, first, limit);
    } else {
        stream_append(stream, RSTRING_PTR(string), length);
        if (buffer_used(&stream->out) >= FLUSH_AT) send_all(stream, 0, 0, limit);
    }
}
