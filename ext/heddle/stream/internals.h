// What the files of the stream share among themselves: life.c (opening, closing, poison), waiting.c (how a fiber or a thread
// waits), reading.c, writing.c, tls.c.
#ifndef HEDDLE_STREAM_INTERNALS_H
#define HEDDLE_STREAM_INTERNALS_H

#include "stream/buffer.h"
#include "stream/stream.h"

#include <sys/types.h>

struct stream_statistics {
    uint64_t receives, sends; // system calls that move bytes; of TLS, calls of its library
    uint64_t waits;           // for the peer
    uint64_t polls;           // system calls made to wait, in threads: a scheduler counts its own
    uint64_t looks;           // … of which without giving up the GVL
    uint64_t received, sent;  // bytes
    uint64_t flushes;
    uint64_t lines; // read by gets
};

enum stream_side { SIDE_READ, SIDE_WRITE };

struct stream {
    VALUE io;      // the socket; nil once closed
    VALUE tls;     // OpenSSL::SSL::SSLSocket, or nil
    VALUE scratch; // a String that TLS reads into, or nil
    VALUE peer;    // for messages: "127.0.0.1:11211"
    int descriptor;
    struct stream_buffer in, out;
    struct stream_buffer piggybacked; // what goes in front of the next message
    uint32_t piggybacked_count;
    uint32_t owed;                 // replies
    uint32_t since_wait;           // operations …
    size_t bytes_since_wait;       // … and bytes: the budget of budget.h, of this stream
    int64_t read_span, write_span; // nanoseconds an operation may take, or DEADLINE_NEVER
    deadline_t until;              // bounds all waits of an exchange
    size_t buffer_limit;
    unsigned forks;         // of the process that it belongs to
    uint32_t foreign_waits; // fibers of this process that wait through another's scheduler
    const char *reason;     // why it was closed, or NULL
    bool busy[2];           // somebody is inside a wait or a call of TLS of that side
    VALUE calling[2];       // the thread that is, in a call, which never waits; or 0. Only compared
    bool closed;
    bool interrupted;      // … by what was raised into a wait
    bool close_later;      // when who waits has left
    bool ended;            // the peer will send no more
    bool likely_empty;     // a receive now would find nothing: wait first
    bool between_messages; // of what was written
    VALUE author;          // … and if not, the fiber whose message it is; else 0
    VALUE conversing;      // the fiber that is in an exchange, or 0
    bool sync;             // each write is a flush
    bool securing;         // TLS is about to begin: only who is in an exchange may read and write
    bool tls_session_kept;
    short tls_wants[2]; // what TLS waits for after -EAGAIN of that side, or 0
    struct stream_statistics statistics;
};

// How long an operation may take, from its first wait on.
struct stream_limit {
    int64_t span;
    deadline_t until; // 0 before the first wait
    enum stream_side side;
    bool waited;        // nothing that is over may wait a second time, be it for what is there already
    deadline_t sending; // of a read: when what goes first has to be gone; 0 while nothing is left of it
};

// ---- life.c
void stream_life_init(void);

struct stream *stream_get(VALUE self);               // may be closed
void stream_check_open(const struct stream *stream); // raises IOError

// Raises IOError when somebody else closed the socket, whose number may be another's.
void stream_check_socket(struct stream *stream);

// Both, and notices that this process is a child of fork, to which the stream has been handed, or has not.
void stream_adopt(struct stream *stream);

// Begins an operation. Raises IOError when the stream is closed, Heddle::StreamBusy when another fiber is inside one of
// that side. Returns with nobody in one.
void stream_enter(struct stream *stream, enum stream_side side);

// Begins an exchange of the running fiber, or one within it. Raises Heddle::StreamBusy while another fiber is in one.
// Returns what `conversing` is at its end.
VALUE stream_exchange(struct stream *stream);

// Closes the descriptor and gives back the buffers, whatever happens; may raise what was sent to this thread.
void stream_shut(struct stream *stream, bool politely);

// The errno of an operation that failed; the stream is closed first.
RBIMPL_ATTR_NORETURN()
void stream_fail(struct stream *stream, int error, const char *doing);

bool stream_healthy(struct stream *stream);

// ---- waiting.c

enum stream_guard {
    GUARD_WAIT,
    GUARD_LOOK, // moves no bytes: what is raised does no harm, unless replies are owed
    GUARD_CALL  // of TLS: other threads may run, but it does not wait
};

// Calls what may run others or raise. When it raises, the stream is poisoned and the exception goes on; when somebody closed
// the stream meanwhile, that is raised.
VALUE stream_guarded(struct stream *stream, enum stream_side side, enum stream_guard guard, VALUE (*body)(VALUE),
                     VALUE argument);

// Until the descriptor is ready for one of these events of poll(2), which it returns. Raises Heddle::DeadlineExceeded.
short stream_wait(struct stream *stream, enum stream_side side, short events, struct stream_limit *limit);

// The same for a read; with `unsent` also until the socket takes more of what goes first, for which a write's time counts too.
short stream_wait_to_read(struct stream *stream, bool unsent, struct stream_limit *limit);

// The same for somebody who only looks: 0 when it is `until`, but the time of an exchange is kept, and what is raised does
// the stream no harm.
short stream_wait_until(struct stream *stream, enum stream_side side, short events, deadline_t until);

// What a wait for reading has to ask for; with `unsent` also what lets the rest go.
short stream_read_events(const struct stream *stream, bool unsent);

// Raises Heddle::DeadlineExceeded when the time of an exchange is over, for operations that do not wait themselves.
void stream_check_time(struct stream *stream, enum stream_side side);

// What was served from the buffer counts, too, and is looked at when the buffer is filled next.
static inline void stream_served(struct stream *stream)
{
    stream->since_wait++;
}

// To be called by operations that found their bytes without waiting: lets others have their turn once in a while, and
// interrupts and deadlines theirs.
void stream_spend(struct stream *stream, enum stream_side side, struct stream_limit *limit);

// ---- reading.c
void stream_reading_init(void);

// The peer closed before the end of what it had begun to send.
RBIMPL_ATTR_NORETURN()
void stream_end_early(struct stream *stream);

// The peer sent more than may be held at once.
RBIMPL_ATTR_NORETURN()
void stream_refuse_more(struct stream *stream, size_t limit);

static inline struct stream_limit stream_read_limit(const struct stream *stream)
{
    return (struct stream_limit){.span = stream->read_span, .side = SIDE_READ};
}

static inline struct stream_limit stream_write_limit(const struct stream *stream)
{
    return (struct stream_limit){.span = stream->write_span, .side = SIDE_WRITE};
}

// One try to receive, without waiting, into the buffer, and into `bytes` first: bytes received, 0 at the end, or -errno.
ssize_t stream_receive(struct stream *stream, uint8_t *bytes, size_t length, size_t room);

// At least a byte more in the buffer; false at the end.
bool stream_fill(struct stream *stream, size_t room, struct stream_limit *limit);

// Puts up to `count` bytes (SIZE_MAX: all until the end) behind the first `arrived` bytes of the string; returns how many it
// holds then. Nobody else may know the string, or it is checked to be left alone.
size_t stream_read_string(struct stream *stream, VALUE string, size_t arrived, size_t count,
                          struct stream_limit *limit);

// What there is, at least one byte, at most `most` of them, as the whole of the string: 0 at the end.
size_t stream_read_some(struct stream *stream, VALUE string, size_t most);

// A String that Ruby code cannot find until it is revealed.
VALUE stream_hidden_string(size_t capacity);
VALUE stream_reveal(VALUE string, size_t length);

// ---- writing.c

// For who is going to read: sends what it can of what was written without waiting, unless somebody else is at it. Returns
// whether there is more, which is then to be tried again when the socket takes some.
bool stream_send_first(struct stream *stream);

// Sends what was written, but not what only rides.
void stream_send_written(struct stream *stream, struct stream_limit *limit);

// As stream_flush, as a part of an operation that has begun.
void stream_flush_within(struct stream *stream, struct stream_limit *limit);

// One try to send these bytes behind what was written: how many of them were, or -EAGAIN. Raises other errors.
ssize_t stream_try_writing(struct stream *stream, const uint8_t *bytes, size_t length);

void stream_write_string(struct stream *stream, VALUE string, struct stream_limit *limit);

// What one record holds at most: more at once would be cut up by OpenSSL, one write call a record all the same.
enum { TLS_RECORD = 16 << 10 };

// ---- tls.c: as io_receive, into the buffer, and io_transmit. They may run other threads.
ssize_t tls_receive(struct stream *stream, size_t length);
ssize_t tls_transmit(struct stream *stream, const uint8_t *bytes, size_t length);
bool tls_pending(struct stream *stream);
VALUE tls_error(void); // the class of its errors, IOError before any was used
void tls_attached(void);
void tls_init(void);

// ---- the methods of Heddle::Stream
void stream_define_reading(VALUE klass);
void stream_define_writing(VALUE klass);

#endif
