// A stream: bytes with a deadline, over a socket or TLS. Clients of protocols build on it; the stream knows no
// protocol.
//
// A function that may wait may run other fibers and threads, raise what is pending for the caller, and move the
// buffers: a pointer into a buffer is valid until the next call of such a function. If a wait raises, the stream has
// been closed: after half an operation nobody knows where an exchange stands.
//
// A request and its reply, in three system calls (send, poll, receive):
//
//     deadline_t before = stream_bound(stream, until);     // one time limit for the whole exchange
//     stream_expect(stream, 1);
//     stream_append(stream, "get k\r\n", 7);               // gathered …
//     const uint8_t *line = stream_buffered(stream, &there);
//     while (!parse(line, there, &length, &size)) {        // in place; malformed: stream_poison, and raise
//         stream_need(stream, there + 1);                  // … and sent before this waits
//         line = stream_buffered(stream, &there);
//     }
//     stream_consume(stream, length);
//     VALUE value = stream_take(stream, size);             // a long value is received directly into its String
//     stream_skip(stream, 2);
//     stream_replied(stream, 1);
//     stream_bound(stream, before);
//     RB_GC_GUARD(object);
//
// A function that waits closes the stream when it raises, unless stream_set_resumable allows for less. If other code
// raises in between (no memory, a block of the user's), the reply is still owed, so the stream is not healthy and a
// pool does not lend it out again.
//
// A client that sends many requests at once calls stream_flush now and then, and need not care how much both sockets
// hold.
#ifndef HEDDLE_STREAM_STREAM_H
#define HEDDLE_STREAM_STREAM_H

#include "os/deadline.h"

struct stream;

// The stream of a Heddle::Stream. Raises TypeError for another object, IOError for a closed stream. Keep the object on
// the stack (RB_GC_GUARD) while the pointer is in use.
struct stream *stream_of(VALUE object);

// Returns whether a Heddle::Stream is closed. Raises TypeError for another object.
bool stream_is_closed(VALUE object);

// ---- reading. All functions except stream_buffered and stream_consume may wait, until the earliest of the read
// timeout, the exchange's time limit and the deadline in force. Written bytes are sent before a wait.

// The bytes that have arrived, in place.
const uint8_t *stream_buffered(const struct stream *stream, size_t *length);

// Makes sure that `count` bytes are in the buffer, and returns their address. Raises Heddle::UnexpectedEnd if the peer
// closes first, Heddle::BufferLimitExceeded for more than the stream may hold.
const uint8_t *stream_need(struct stream *stream, size_t count);

// Consumes `count` bytes, which must be in the buffer. Pointers to the rest stay valid.
void stream_consume(struct stream *stream, size_t count);

// Call this between two messages: code that always finds its bytes in the buffer never waits. Once many bytes were
// parsed since the last wait, lets other fibers run, and raises an error that a wait would raise. `bytes` are parsed
// bytes beyond the consumed ones: a short value may stand for a long number. May move the buffers.
void stream_parsed(struct stream *stream, size_t bytes);

// Returns the next `count` bytes as a new binary String, receiving directly into it. A length from the wire costs at
// most 4 MiB of memory before the bytes arrive. Raises Heddle::UnexpectedEnd.
VALUE stream_take(struct stream *stream, size_t count);

// Skips `count` bytes. Raises Heddle::UnexpectedEnd.
void stream_skip(struct stream *stream, size_t count);

// Receives once what has arrived, without waiting. STREAM_GONE: the peer has closed the stream, or it failed; the next
// function that waits says which.
enum stream_arrived { STREAM_NOTHING, STREAM_BYTES, STREAM_GONE };
enum stream_arrived stream_receive_arrived(struct stream *stream);

// Waits until more than `buffered` bytes may be there, or the end; false after `span` nanoseconds. An exception in this
// wait leaves the stream unchanged, unless replies are owed.
bool stream_wait_for_more(struct stream *stream, size_t buffered, int64_t span);

// ---- writing. Only the first three functions never wait; they raise IOError for a closed stream, Heddle::StreamBusy
// while another fiber sends.

// Reserves room for `count` bytes at the end of the bytes to be sent. Call stream_commit with the number of bytes that
// were put there before any other write.
uint8_t *stream_reserve(struct stream *stream, size_t count);
void stream_commit(struct stream *stream, size_t count);
void stream_append(struct stream *stream, const void *bytes, size_t length);

// Queues a message without a reply that nobody waits for: it is piggybacked on the next message. Beyond 64 KiB or 128
// messages they are sent at once, which may wait.
void stream_queue_no_reply(struct stream *stream, const void *bytes, size_t length);

// Sends everything, including piggybacked bytes. If the peer takes no more, reads meanwhile what the peer sends.
void stream_flush(struct stream *stream);

// Ends the message that the caller has written. It is sent with those of other fibers: by whoever reads, or by
// stream_send_now, which sends as much as the socket takes at once. Neither waits; another fiber may be reading.
// Returns whether no message is partly written now.
bool stream_end_message(struct stream *stream);
void stream_send_now(struct stream *stream);

// Lets the other fibers that are ready end messages of theirs, before stream_send_now. Returns false in a child of a
// fork that a trap handler has made meanwhile: the parent sends.
bool stream_gather(void);

// Before each sleep of a fiber whose reply comes behind those of others: raises DeadlineExceeded from `until` on.
void stream_check_late(const struct stream *stream, deadline_t until);

// How many bytes were written until now, without the piggybacked ones, and how many of them the socket has taken. Also
// for a closed stream.
uint64_t stream_written(const struct stream *stream);
uint64_t stream_sent(const struct stream *stream);

// Sends as many piggybacked bytes as the socket takes at once: for another thread than the stream's user, between two
// operations. Never waits and lets no other code run; raises IOError for a closed stream. Returns false if it cannot
// send: over TLS, in the middle of a message, or when the connection is lost, which the user's next operation reports.
bool stream_send_piggybacked(struct stream *stream);

// The number of piggybacked bytes that were not sent yet.
size_t stream_piggybacked(const struct stream *stream);

// ---- exchanges of requests and replies

// The peer owes `replies` more replies. A stream with outstanding replies is not healthy and must not be handed on.
void stream_expect(struct stream *stream, unsigned replies);

// `replies` replies were read completely.
void stream_replied(struct stream *stream, unsigned replies);

// Limits every wait to this instant, until the next call. Returns the previous limit.
deadline_t stream_bound(struct stream *stream, deadline_t until);

// Sets whether the stream stays open if an exception or a time limit ends a wait for the peer, because the client can
// read the rest of the reply later. If unsent bytes are left, the stream is closed all the same. Returns the previous
// value.
bool stream_set_resumable(struct stream *stream, bool resumable);

// Sets whether the replies are those of several tasks, which take turns in reading. A wait that may be resumed then
// leaves the stream open with unsent bytes, too: whoever reads next sends them.
void stream_set_shared(struct stream *stream, bool shared);

// Returns whether the stream has stayed open in that way since the last call of stream_set_resumable.
bool stream_kept_open(const struct stream *stream);

// Returns whether reads and writes raise this exception when the connection cannot go on: an error of Ruby's IO, of the
// system or of TLS.
bool stream_is_failure(VALUE error);

// Closes the stream: requests and replies no longer match. `reason`, a literal, goes into the errors of later
// operations.
void stream_poison(struct stream *stream, const char *reason);

// Returns whether an exception in one of its waits closed the stream: a deadline around the running code, a
// cancellation, an exception from another thread. The peer has done nothing wrong then.
bool stream_was_interrupted(VALUE object);

// Returns whether the stream is encrypted: sent bytes are then cut into records of at most 16 KiB, each of which costs
// a call.
bool stream_encrypted(const struct stream *stream);

#endif
