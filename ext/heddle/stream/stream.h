// Bytes with a deadline, over a socket or TLS: what clients that speak a protocol build on. Knows no protocol.
//
// Whatever says that it may wait may run other fibers and threads, raise what was sent to this one, and move the buffers: a
// pointer into them is good until the next call of one of these. When anything is raised in a wait, the stream has been
// closed: nobody knows where an exchange stands after half an operation.
//
// A question and its answer, in three system calls (send, poll, receive):
//
//     deadline_t before = stream_bound(stream, until);     // one time for all of it
//     stream_expect(stream, 1);
//     stream_append(stream, "get k\r\n", 7);               // gathered …
//     const uint8_t *line = stream_buffered(stream, &there);
//     while (!parse(line, there, &length, &size)) {        // in place; nonsense: stream_poison, and raise
//         stream_need(stream, there + 1);                  // … and sent when this has to wait
//         line = stream_buffered(stream, &there);
//     }
//     stream_consume(stream, length);
//     VALUE value = stream_take(stream, size);             // a large one is received straight into its String
//     stream_skip(stream, 2);
//     stream_replied(stream, 1);
//     stream_bound(stream, before);
//     RB_GC_GUARD(object);
//
// What waits closes the stream when it raises. For what else may raise in between (no memory, a block of the user's) the
// reply that is still owed keeps the stream from being healthy, and whoever lends it out from lending it out again.
//
// One who asks much at once calls stream_flush now and then, and never has to mind what both sides' sockets hold.
#ifndef HEDDLE_STREAM_STREAM_H
#define HEDDLE_STREAM_STREAM_H

#include "deadline.h"

struct stream;

// That of a Heddle::Stream. Raises TypeError for anything else, IOError for one that is closed. Keep the object on the
// stack (RB_GC_GUARD) while the pointer is in use.
struct stream *stream_of(VALUE object);

// Whether that of a Heddle::Stream is closed. Raises TypeError for anything else.
bool stream_is_closed(VALUE object);

// ---- reading. All but stream_buffered and stream_consume may wait: until the read timeout, the deadline of the exchange
// and the one in force, whichever is first. Before a wait, what was written is sent.

// What has arrived already, in place.
const uint8_t *stream_buffered(const struct stream *stream, size_t *length);

// Has at least so many bytes in the buffer, and says where. Raises Heddle::UnexpectedEnd when the peer closes before,
// Heddle::BufferLimitExceeded for more than the stream may hold.
const uint8_t *stream_need(struct stream *stream, size_t count);

// So many bytes, which are in the buffer, are done with. Pointers into the rest stay good.
void stream_consume(struct stream *stream, size_t count);

// The next bytes as a binary String of their own, what has not arrived yet straight into it. A length that comes from the
// wire costs no more than 4 MiB of memory before the bytes are there. Raises Heddle::UnexpectedEnd.
VALUE stream_take(struct stream *stream, size_t count);

// Passes over so many bytes. Raises Heddle::UnexpectedEnd.
void stream_skip(struct stream *stream, size_t count);

// ---- writing. Only the first three never wait; they raise IOError for a closed stream, Heddle::StreamBusy while somebody
// else sends.

// Room for so many bytes at the end of what is to be sent; commit says how many were put there, before anything else is
// written.
uint8_t *stream_reserve(struct stream *stream, size_t count);
void stream_commit(struct stream *stream, size_t count);
void stream_append(struct stream *stream, const void *bytes, size_t length);

// Bytes that the peer does not answer and that nobody waits for: they ride in front of the next message. Beyond 64 KiB or
// 128 messages they are sent at once, which may wait.
void stream_queue_no_reply(struct stream *stream, const void *bytes, size_t length);

// Sends all there is, also what rides, and reads meanwhile what the peer sends when it takes no more.
void stream_flush(struct stream *stream);

// Sends what rides, as much of it as is taken at once: for another thread than the one that uses the stream, between two of
// its operations. Never waits and lets nobody else run; raises IOError for a closed stream. False when it could not: over
// TLS, in the middle of a message, or when the connection is lost, which its user is told by the next operation.
bool stream_send_piggybacked(struct stream *stream);

// ---- exchanges of requests and replies

// So many replies more are owed. A stream that is owed some is not healthy: it is not to be handed on.
void stream_expect(struct stream *stream, unsigned replies);

// So many have been read whole.
void stream_replied(struct stream *stream, unsigned replies);

// Every wait until it is changed again ends by this instant, or earlier. Returns what was in force before.
deadline_t stream_bound(struct stream *stream, deadline_t until);

// Closes it: what was asked and answered no longer match. `reason`, a literal, goes into the errors of later operations.
void stream_poison(struct stream *stream, const char *reason);

// Whether it was closed because something was raised into one of its waits: a deadline around the code that runs, a cancel,
// what another thread raised. The peer has done nothing wrong then.
bool stream_was_interrupted(VALUE object);

// Whether what is sent is encrypted, and so cut into records of 16 KiB at most, of which each costs a call.
bool stream_encrypted(const struct stream *stream);

#endif
