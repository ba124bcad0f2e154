// Reads: sends what was written, receives (receive_once.c) and waits (waiting.c) until enough has come.
#include "stream/internals.h"

#include <errno.h>
#include <string.h>

enum {
    LEAST_ROOM = 4 << 10,       // less free room than this is not worth a system call
    DIRECT = 16 << 10,          // if more than this is missing from a String, it bypasses the buffer
    FIRST_RESERVE = 4 << 20,    // memory reserved for announced bytes that have not arrived
    LARGEST_RESERVE = 16 << 20, // … once many have arrived
    SKIP_ROOM = 64 << 10,
    AT_ONCE = 16 << 10
};

// Waits unless a receive is likely to find something. Sends written bytes first, because the peer answers no request
// that was not sent. Bytes that the socket does not take are sent during the wait: the peer may answer only after it
// has sent more of them on, or has had them all.
static void await(struct stream *stream, struct stream_limit *limit)
{
    size_t before = buffer_used(&stream->in);
    for (;;) {
        bool unsent = stream_send_first(stream);
        // Another thread may have received bytes meanwhile.
        if (buffer_used(&stream->in) != before || stream->state == STREAM_ENDED) return;
        if (!stream->likely_empty || (!NIL_P(stream->tls) && tls_pending(stream))) {
            stream_spend(stream, SIDE_READ, limit);
            return;
        }
        short found = stream_wait_to_read(stream, unsent, limit);
        if (found & stream_read_events(stream, false)) break;
    }
    stream->tls_wants[SIDE_READ] = 0;
    stream->likely_empty = false;
}

// Code that keeps reading at the end never waits: it must notice that its time is over, too.
static bool at_end(struct stream *stream, struct stream_limit *limit)
{
    if (stream->state == STREAM_ENDED) stream_spend(stream, SIDE_READ, limit);
    return stream->state == STREAM_ENDED;
}

bool stream_fill(struct stream *stream, size_t room, struct stream_limit *limit)
{
    size_t most = NIL_P(stream->tls) ? FIRST_RESERVE : BUFFER_KEEP; // TLS returns one record at a time
    if (room < LEAST_ROOM) room = LEAST_ROOM;
    if (room > most) room = most;
    for (;;) {
        if (at_end(stream, limit)) return false;
        size_t before = buffer_used(&stream->in);
        await(stream, limit);
        if (buffer_used(&stream->in) > before) return true;
        if (stream->state == STREAM_ENDED) return false;
        ssize_t count = stream_receive(stream, NULL, 0, room);
        if (count > 0) return true;
        if (count == 0) return false;
        if (count != -EAGAIN) stream_fail(stream, (int)-count, "reading from");
    }
}

// ---- in place

const uint8_t *stream_buffered(const struct stream *stream, size_t *length)
{
    *length = buffer_used(&stream->in);
    return *length ? buffer_front(&stream->in) : NULL;
}

enum stream_arrived stream_receive_arrived(struct stream *stream)
{
    stream_enter(stream, SIDE_READ);
    if (stream->state == STREAM_ENDED) return STREAM_GONE;
    if (buffer_used(&stream->in) >= stream->buffer_limit) return STREAM_BYTES;
    stream->busy[SIDE_READ] = true; // TLS lets other code run: nobody may read in between
    ssize_t count = stream_receive(stream, NULL, 0, AT_ONCE);
    stream->busy[SIDE_READ] = false; // if the receive raises, the stream is closed
    return count > 0 ? STREAM_BYTES : count == -EAGAIN ? STREAM_NOTHING : STREAM_GONE;
}

const uint8_t *stream_need(struct stream *stream, size_t count)
{
    if (count > stream->buffer_limit) stream_refuse_more(stream, stream->buffer_limit);
    stream_enter(stream, SIDE_READ);
    struct stream_limit limit = stream_read_limit(stream);
    while (buffer_used(&stream->in) < count) {
        if (!stream_fill(stream, count - buffer_used(&stream->in), &limit)) stream_end_early(stream);
    }
    return buffer_front(&stream->in);
}

void stream_consume(struct stream *stream, size_t count)
{
    stream_served(stream);
    stream->parsed_since_wait += count;
    buffer_consume(&stream->in, count);
}

void stream_skip(struct stream *stream, size_t count)
{
    stream_enter(stream, SIDE_READ);
    struct stream_limit limit = stream_read_limit(stream);
    for (;;) {
        size_t used = buffer_used(&stream->in);
        size_t taken = used < count ? used : count;
        buffer_consume(&stream->in, taken);
        count -= taken;
        if (count == 0) return;
        if (!stream_fill(stream, count < SKIP_ROOM ? count : SKIP_ROOM, &limit)) stream_end_early(stream);
    }
}

bool stream_wait_for_more(struct stream *stream, size_t buffered, int64_t span)
{
    stream_enter(stream, SIDE_READ);
    deadline_t until = deadline_in(span);
    for (;;) {
        if (buffer_used(&stream->in) > buffered || stream->state == STREAM_ENDED) return true;
        bool unsent = stream_send_first(stream);
        if (buffer_used(&stream->in) > buffered || (!NIL_P(stream->tls) && tls_pending(stream))) return true;
        short found = stream_wait_until(stream, SIDE_READ, stream_read_events(stream, unsent), until);
        if (!found) return false;
        if (found & stream_read_events(stream, false)) break;
    }
    stream->likely_empty = false;
    return true;
}

// ---- into Strings

VALUE stream_hidden_string(size_t capacity)
{
    if (capacity > LONG_MAX / 2) rb_raise(rb_eNoMemError, "a String cannot hold %zu bytes", capacity);
    return rb_obj_hide(rb_str_buf_new((long)capacity));
}

VALUE stream_reveal(VALUE string, size_t length)
{
    rb_str_resize(string, (long)length); // frees unused capacity
    return rb_obj_reveal(string, rb_cString);
}

static uint8_t *string_room(VALUE string, size_t arrived, size_t *room)
{
    if ((size_t)RSTRING_LEN(string) != arrived)
        rb_raise(rb_eRuntimeError, "the String was changed during a read into it");
    size_t free_room = rb_str_capacity(string) - arrived;
    if (free_room == 0 || *room < free_room) free_room = *room;
    if (free_room < *room && free_room < DIRECT) free_room = *room;
    size_t most = arrived < FIRST_RESERVE ? FIRST_RESERVE : arrived > LARGEST_RESERVE ? LARGEST_RESERVE : arrived;
    if (free_room > most) free_room = most;
    // Ruby's rb_str_modify_expand sets the capacity, even to a smaller one.
    if (rb_str_capacity(string) - arrived < free_room) {
        rb_str_modify_expand(string, (long)free_room);
    } else {
        rb_str_modify(string);
    }
    *room = free_room;
    return (uint8_t *)RSTRING_PTR(string) + arrived;
}

// Moves up to `count` bytes from the buffer to the string.
static size_t move_buffered(struct stream *stream, VALUE string, size_t arrived, size_t count)
{
    size_t used = buffer_used(&stream->in);
    size_t taken = used < count ? used : count;
    if (taken == 0) return arrived;
    size_t room = taken;
    while (taken > 0) {
        uint8_t *to = string_room(string, arrived, &room);
        memcpy(to, buffer_front(&stream->in), room);
        buffer_consume(&stream->in, room);
        arrived += room;
        rb_str_set_len(string, (long)arrived);
        taken -= room;
        room = taken;
    }
    return arrived;
}

static size_t read_string(struct stream *stream, VALUE string, size_t arrived, size_t count, struct stream_limit *limit)
{
    for (;;) {
        arrived = move_buffered(stream, string, arrived, count - arrived);
        if (arrived == count || at_end(stream, limit)) return arrived;
        if (count - arrived < DIRECT || !NIL_P(stream->tls)) {
            if (!stream_fill(stream, count - arrived, limit)) return arrived;
            continue;
        }
        await(stream, limit);
        if (buffer_used(&stream->in) || stream->state == STREAM_ENDED) continue;
        size_t room = count == SIZE_MAX ? (arrived < DIRECT ? DIRECT : arrived) : count - arrived;
        bool whole = room == count - arrived;
        uint8_t *to = string_room(string, arrived, &room);
        whole = whole && room == count - arrived;
        ssize_t received = stream_receive(stream, to, room, whole ? LEAST_ROOM : 0);
        if (received == -EAGAIN) continue;
        if (received < 0) stream_fail(stream, (int)-received, "reading from");
        arrived += (size_t)received < room ? (size_t)received : room;
        rb_str_set_len(string, (long)arrived);
    }
}

struct string_reading {
    struct stream *stream;
    struct stream_limit *limit;
    VALUE string;
    size_t arrived, count;
    bool complete;
};

static VALUE string_body(VALUE argument)
{
    struct string_reading *reading = (struct string_reading *)argument;
    reading->arrived = read_string(reading->stream, reading->string, reading->arrived, reading->count, reading->limit);
    reading->complete = true;
    return Qnil;
}

static VALUE string_end(VALUE argument)
{
    const struct string_reading *reading = (const struct string_reading *)argument;
    // The String was frozen meanwhile, or there was no memory for it: bytes were taken from the stream and are lost.
    if (!reading->complete) stream_poison(reading->stream, "a String could not take the bytes that were read");
    return Qnil;
}

size_t stream_read_string(struct stream *stream, VALUE string, size_t arrived, size_t count, struct stream_limit *limit)
{
    struct string_reading reading = {
        .stream = stream, .string = string, .arrived = arrived, .count = count, .limit = limit};
    rb_ensure(string_body, (VALUE)&reading, string_end, (VALUE)&reading);
    return reading.arrived;
}

size_t stream_read_some(struct stream *stream, VALUE string, size_t most)
{
    struct stream_limit limit = stream_read_limit(stream);
    while (!buffer_used(&stream->in)) {
        if (at_end(stream, &limit)) return 0;
        if (most < DIRECT || !NIL_P(stream->tls)) {
            if (!stream_fill(stream, most, &limit)) return 0;
            continue;
        }
        await(stream, &limit);
        if (buffer_used(&stream->in)) break;
        size_t room = most;
        uint8_t *to = string_room(string, 0, &room);
        ssize_t count = stream_receive(stream, to, room, 0);
        if (count == -EAGAIN) continue;
        if (count < 0) stream_fail(stream, (int)-count, "reading from");
        rb_str_set_len(string, (long)count);
        return (size_t)count;
    }
    return move_buffered(stream, string, 0, most);
}

VALUE stream_take(struct stream *stream, size_t count)
{
    stream_enter(stream, SIDE_READ);
    size_t used = buffer_used(&stream->in);
    if (used >= count) {
        stream_served(stream);
        VALUE string = rb_str_new((const char *)(count ? buffer_front(&stream->in) : NULL), (long)count);
        if (count) buffer_consume(&stream->in, count);
        return string;
    }
    struct stream_limit limit = stream_read_limit(stream);
    VALUE string = stream_hidden_string(count < FIRST_RESERVE ? count : FIRST_RESERVE);
    if (stream_read_string(stream, string, 0, count, &limit) < count) stream_end_early(stream);
    return stream_reveal(string, count);
}
