// Shared by the files of this layer, of which each calls only those before it: life.c (states, closing, poisoning),
// object.c, waiting.c (how a fiber or a thread waits), tls.c, receive_once.c, writing.c, reading.c, the methods.
#ifndef HEDDLE_STREAM_INTERNALS_H
#define HEDDLE_STREAM_INTERNALS_H

#include "stream/buffer.h"
#include "stream/stream.h"

#include <sys/types.h>

struct stream_statistics {
    uint64_t receives, sends; // system calls that move bytes; with TLS, calls of its library
    uint64_t waits;           // for the peer
    uint64_t polls;           // system calls made to wait, in plain threads: a scheduler counts its own
    uint64_t looks;           // … of which with the GVL held
    uint64_t received, sent;  // bytes
    uint64_t flushes;
    uint64_t lines; // read by gets
};

enum stream_side { SIDE_READ, SIDE_WRITE };

// life.c has the table of transitions.
enum stream_state {
    STREAM_NEW,   // without a socket
    STREAM_OPEN,  // both sides
    STREAM_ENDED, // the peer will send no more
    STREAM_SHUT,  // closed for its users, but the descriptor is kept until fibers of another scheduler have left
    STREAM_CLOSED
};

// What an exception in a wait for the peer's reply does.
enum stream_resuming {
    RESUME_NEVER,    // closes the stream: nobody will read the rest of the reply
    RESUME_POSSIBLE, // leaves it open
    RESUME_NEEDED    // has left it open: the rest must be read first
};

struct stream {
    VALUE self;    // the Heddle::Stream, for write barriers
    VALUE io;      // the socket; nil once closed
    VALUE tls;     // OpenSSL::SSL::SSLSocket, or nil
    VALUE scratch; // a String that TLS reads into, or nil
    VALUE peer;    // for messages: "127.0.0.1:11211"
    int descriptor;
    struct stream_buffer in, out;
    struct stream_buffer piggybacked; // bytes that are sent before the next message
    uint32_t piggybacked_count;
    uint32_t owed;                 // outstanding replies
    uint32_t since_wait;           // operations …
    size_t bytes_since_wait;       // … and bytes since the last wait: this stream's budget, see budget.h
    size_t parsed_since_wait;      // bytes that were parsed in place
    int64_t read_span, write_span; // nanoseconds an operation may take, or DEADLINE_NEVER
    deadline_t until;              // limits all waits of an exchange
    size_t buffer_limit;
    unsigned forks;                 // fork_count() of the process that owns the stream
    uint32_t other_scheduler_waits; // fibers of this process that wait through another scheduler
    const char *reason;             // why the stream was closed, or NULL
    bool busy[2];                   // a fiber or thread is inside a wait or a TLS call of that side
    VALUE calling[2];               // the thread inside a TLS call, which never waits; or 0. Only compared
    enum stream_state state;
    enum stream_resuming resuming;
    bool shared;       // see stream_set_shared
    bool interrupted;  // an exception in one of its waits closed it
    bool likely_empty; // a receive now would find nothing: wait first
    bool sync;         // each write is a flush
    bool securing;     // TLS is starting: only the fiber in the exchange may read and write
    bool tls_session_kept;
    VALUE author;       // the fiber that has begun a message; 0 between two messages
    VALUE exchanging;   // the fiber that is in an exchange, or 0
    short tls_wants[2]; // the events that TLS waits for after -EAGAIN of that side, or 0
    struct stream_statistics statistics;
};

// The time limit of one operation, counted from its first wait.
struct stream_limit {
    int64_t span;
    deadline_t until; // 0 before the first wait
    enum stream_side side;
    bool waited;        // a wait has begun: once the time is over, none may begin, even for bytes that are there
    deadline_t sending; // of a read: when the bytes to be sent first must be gone; 0 if none are left
};

// ---- life.c
void stream_life_define(void);

static inline bool stream_is_open(const struct stream *stream)
{
    return stream->state == STREAM_OPEN || stream->state == STREAM_ENDED;
}

// Every change of state goes through this; a debug build checks it.
void stream_change(struct stream *stream, enum stream_state to);

// Sets one of the stream's references to an object.
static inline void stream_refer(struct stream *stream, VALUE *field, VALUE object)
{
    RB_OBJ_WRITE(stream->self, field, object);
}

void stream_check_open(const struct stream *stream); // raises IOError

// Returns whether other code closed the socket: its number may belong to another file by now, to which no byte of ours
// may go.
bool stream_socket_gone(const struct stream *stream);

// Raises IOError then.
void stream_check_socket(struct stream *stream);

// Runs both checks; detects a fork, and takes the stream over or poisons it.
void stream_adopt(struct stream *stream);

// Begins an operation. Raises IOError if the stream is closed, Heddle::StreamBusy while another fiber is inside an
// operation of that side. No other operation of that side runs when this returns.
void stream_enter(struct stream *stream, enum stream_side side);

// Begins an exchange of the running fiber, or a nested one. Raises Heddle::StreamBusy while another fiber is in an
// exchange. Returns the value to restore to `exchanging` at its end.
VALUE stream_exchange(struct stream *stream);

// Always closes the descriptor and frees the buffers; may raise an interrupt of this thread.
void stream_shut(struct stream *stream, bool politely);

// Closes the stream and raises the errno of a failed operation.
RBIMPL_ATTR_NORETURN()
void stream_fail(struct stream *stream, int error, const char *doing);

// The class of TLS errors; IOError before TLS was first used.
VALUE stream_tls_error(void);
void stream_tls_attached(void);

// ---- object.c
VALUE stream_allocate(VALUE klass);
struct stream *stream_get(VALUE self); // may return a closed one

// ---- waiting.c

enum stream_guard {
    GUARD_WAIT,
    GUARD_LOOK, // moves no bytes: an exception does no harm, unless replies are owed
    GUARD_CALL  // of TLS: other threads may run, but the call does not wait
};

// Calls a body that may run other fibers or raise. If it raises, poisons the stream and passes the exception on. Raises
// if the stream was closed meanwhile.
VALUE stream_guarded(struct stream *stream, enum stream_side side, enum stream_guard guard, VALUE (*body)(VALUE),
                     VALUE argument);

// Waits until the descriptor is ready for one of these events of poll(2). Returns the ready events. Raises
// Heddle::DeadlineExceeded.
short stream_wait(struct stream *stream, enum stream_side side, short events, struct stream_limit *limit);

// Like stream_wait, for a read. With `unsent`, also waits until the socket takes more of the bytes to be sent first;
// the write timeout applies to these, too.
short stream_wait_to_read(struct stream *stream, bool unsent, struct stream_limit *limit);

// Like stream_wait, for code that only waits and moves no bytes: returns 0 at `until`; the time of an exchange still
// applies; an exception does not poison the stream.
short stream_wait_until(struct stream *stream, enum stream_side side, short events, deadline_t until);

// The events that a wait for reading asks for; with `unsent` also the events for sending the rest.
short stream_read_events(const struct stream *stream, bool unsent);

// For operations that do not wait themselves: raises Heddle::DeadlineExceeded when the time of an exchange is over.
void stream_check_time(struct stream *stream, enum stream_side side);

// Counts an operation that the buffer served. The budget is checked when the buffer is next filled.
static inline void stream_served(struct stream *stream)
{
    stream->since_wait++;
}

// Called by operations that found their bytes without waiting: once the budget is spent, lets other fibers run, and
// raises interrupts and deadlines.
void stream_spend(struct stream *stream, enum stream_side side, struct stream_limit *limit);

static inline struct stream_limit stream_read_limit(const struct stream *stream)
{
    return (struct stream_limit){.span = stream->read_span, .side = SIDE_READ};
}

static inline struct stream_limit stream_write_limit(const struct stream *stream)
{
    return (struct stream_limit){.span = stream->write_span, .side = SIDE_WRITE};
}

// ---- tls.c: like io_receive, into the buffer, and like io_transmit. These may run other threads.
ssize_t tls_receive(struct stream *stream, size_t length);
ssize_t tls_transmit(struct stream *stream, const uint8_t *bytes, size_t length);
bool tls_pending(struct stream *stream);
void tls_define(void);

// The most bytes of one record: OpenSSL would cut up more, and needs one write call per record all the same.
enum { TLS_RECORD = 16 << 10 };

// ---- receive_once.c
void stream_receiving_define(void);

// Tries once to receive, without waiting: first into `bytes`, then into the buffer. Returns the number of bytes, 0 at
// the end, or -errno.
ssize_t stream_receive(struct stream *stream, uint8_t *bytes, size_t length, size_t room);

// Raises: the peer closed the connection in the middle of a reply.
RBIMPL_ATTR_NORETURN()
void stream_end_early(struct stream *stream);

// Raises: the peer sent more than may be held at once.
RBIMPL_ATTR_NORETURN()
void stream_refuse_more(struct stream *stream, size_t limit);

bool stream_healthy(struct stream *stream);

// ---- writing.c

// For code that is about to read: sends written bytes without waiting, unless another fiber is sending. Returns whether
// bytes are left, to be tried again when the socket takes more.
bool stream_send_first(struct stream *stream);

// Sends the written bytes, but no bytes that are only piggybacked.
void stream_send_written(struct stream *stream, struct stream_limit *limit);

// Like stream_flush, as a part of an operation that has begun.
void stream_flush_within(struct stream *stream, struct stream_limit *limit);

// Tries once to send the written bytes and then these bytes. Returns how many of these were sent, or -EAGAIN. Raises
// other errors.
ssize_t stream_try_writing(struct stream *stream, const uint8_t *bytes, size_t length);

void stream_write_string(struct stream *stream, VALUE string, struct stream_limit *limit);

// ---- reading.c

// Receives at least one more byte into the buffer; returns false at the end.
bool stream_fill(struct stream *stream, size_t room, struct stream_limit *limit);

// Reads up to `count` bytes (SIZE_MAX: all until the end) behind the first `arrived` bytes of the string. Returns the
// number of bytes that the string then holds. The string must be hidden from other code, or this checks that it stays
// unchanged.
size_t stream_read_string(struct stream *stream, VALUE string, size_t arrived, size_t count,
                          struct stream_limit *limit);

// Replaces the string with available bytes, at least one and at most `most`. Returns 0 at the end.
size_t stream_read_some(struct stream *stream, VALUE string, size_t most);

// Makes a String that Ruby code cannot find until stream_reveal.
VALUE stream_hidden_string(size_t capacity);
VALUE stream_reveal(VALUE string, size_t length);

// ---- the methods of Heddle::Stream
void stream_reading_define(VALUE klass);
void stream_writing_define(VALUE klass);
void stream_exchanges_define(VALUE klass);

#endif
