// The states of a stream, how it is opened and closed, and in which processes and threads it may be used.
#include "stream/internals.h"

#include "os/fork.h"
#include "protect.h"
#include "shims.h"

#include <sys/socket.h>

static VALUE eStreamBusy, eStreamClosed, eTLS;

void stream_change(struct stream *stream, enum stream_state to)
{
    static const bool allowed[][STREAM_CLOSED + 1] = {
        [STREAM_NEW] = {[STREAM_OPEN] = true},
        [STREAM_OPEN] = {[STREAM_ENDED] = true, [STREAM_SHUT] = true, [STREAM_CLOSED] = true},
        [STREAM_ENDED] = {[STREAM_SHUT] = true, [STREAM_CLOSED] = true},
        [STREAM_SHUT] = {[STREAM_CLOSED] = true},
        [STREAM_CLOSED] = {false},
    };
    HEDDLE_ASSERT(allowed[stream->state][to]);
    (void)allowed; // without asserts
    stream->state = to;
}

// A child of fork shares the socket. Only the parent may send the bytes that were written and not sent, and read the
// replies that are owed. A stream at rest may have been handed over to the child, as by a server that forks for each
// connection.
static void adopt(struct stream *stream)
{
    stream->forks = fork_count();
    bool at_rest = !stream->owed && !stream->busy[SIDE_READ] && !stream->busy[SIDE_WRITE] &&
                   !buffer_used(&stream->out) && !buffer_used(&stream->piggybacked);
    stream->busy[SIDE_READ] = stream->busy[SIDE_WRITE] = false;
    stream->other_scheduler_waits = 0;
    if (stream->exchanging != rb_fiber_current()) stream->exchanging = 0; // its thread exists only in the parent
    if (at_rest) {
        stream->author = 0; // may be a fiber of a thread that does not exist here
        return;
    }
    buffer_release(&stream->out);
    buffer_release(&stream->piggybacked);
    stream->tls = Qnil; // closing TLS here would end the parent's connection
    stream_poison(stream, "this process was forked while the parent used the stream");
}

void stream_check_open(const struct stream *stream)
{
    if (stream_is_open(stream)) return;
    if (!stream->reason) rb_raise(rb_eIOError, "closed stream");
    rb_raise(eStreamClosed, "the stream to %" PRIsVALUE " is closed (%s): connect again", stream->peer, stream->reason);
}

bool stream_socket_gone(const struct stream *stream)
{
    return shim_open_descriptor(stream->io) != stream->descriptor;
}

void stream_check_socket(struct stream *stream)
{
    if (!stream_socket_gone(stream)) return;
    stream_poison(stream, "other code closed the socket");
    stream_check_open(stream);
}

void stream_adopt(struct stream *stream)
{
    if (stream_is_open(stream) && stream->forks != fork_count()) adopt(stream);
    stream_check_open(stream);
    stream_check_socket(stream);
}

RBIMPL_ATTR_NORETURN()
static void life_refuse(const struct stream *stream, const char *others)
{
    rb_raise(eStreamBusy,
             "another fiber or thread is %s %" PRIsVALUE ": give each its own stream, or let them take turns", others,
             stream->peer);
}

VALUE stream_exchange(struct stream *stream)
{
    stream_adopt(stream);
    VALUE before = stream->exchanging;
    VALUE fiber = rb_fiber_current();
    // Both fibers would send requests, and each might read the other's reply. Nothing is lost yet.
    if (before && before != fiber) life_refuse(stream, "in the middle of an exchange with");
    stream_refer(stream, &stream->exchanging, fiber);
    return before;
}

void stream_enter(struct stream *stream, enum stream_side side)
{
    stream_adopt(stream);
    if (stream->securing && stream->exchanging != rb_fiber_current()) life_refuse(stream, "beginning TLS with");
    while (stream->busy[side]) {
        VALUE caller = stream->calling[side];
        // Another fiber of this thread is inside a TLS call: a callback of the program waits there.
        if (!caller || caller == rb_thread_current())
            life_refuse(stream, side == SIDE_READ ? "reading from" : "writing to");
        // TLS reads while it writes and writes while it reads, for a moment only: no reason to refuse.
        rb_thread_schedule();
        stream_check_open(stream);
    }
}

// ---- failures

VALUE stream_tls_error(void)
{
    return eTLS;
}

bool stream_is_failure(VALUE error)
{
    return RTEST(rb_obj_is_kind_of(error, rb_eIOError)) || RTEST(rb_obj_is_kind_of(error, rb_eSystemCallError)) ||
           RTEST(rb_obj_is_kind_of(error, eTLS));
}

void stream_tls_attached(void)
{
    eTLS = rb_path2class("OpenSSL::OpenSSLError");
}

// ---- closing

static VALUE close_io(VALUE io)
{
    return rb_funcall(io, rb_intern("close"), 0);
}

static VALUE ignore(VALUE unused, VALUE error)
{
    (void)unused, (void)error;
    return Qnil;
}

// Ignores errors of the socket and of TLS: nothing is lost with a connection that ends. Any other error came from
// outside (a timeout, Thread#raise).
static VALUE close_quietly(VALUE io)
{
    return rb_rescue2(close_io, io, ignore, Qnil, rb_eIOError, rb_eSystemCallError, eTLS, (VALUE)0);
}

static bool is_closed(VALUE io)
{
    return NIL_P(io) || shim_open_descriptor(io) < 0;
}

// An interrupt inside close leaves the IO open: closes it again, and passes the interrupt on.
static VALUE close_surely(VALUE io)
{
    int state = 0;
    protect_until(is_closed, close_quietly, io, &state);
    if (state) rb_jump_tag(state);
    return Qnil;
}

void stream_shut(struct stream *stream, bool politely)
{
    bool childs = stream->forks != fork_count(); // the parent owns the socket
    // A fiber that waits through another scheduler may never learn of the close, and would then wait for the next
    // file with this number. So shut the socket down first, and close it later.
    bool waited_for = stream->other_scheduler_waits && !childs && !stream_socket_gone(stream);
    if (waited_for && shutdown(stream->descriptor, SHUT_RDWR) == 0) {
        stream_change(stream, STREAM_SHUT);
        return;
    }
    VALUE io = stream->io;
    VALUE tls = stream->tls;
    stream_change(stream, STREAM_CLOSED);
    stream->io = stream->tls = stream->scratch = Qnil;
    stream->descriptor = -1;
    buffer_release(&stream->in);
    buffer_release(&stream->out);
    buffer_release(&stream->piggybacked);
    if (politely && !NIL_P(tls) && !childs) {
        rb_ensure(close_quietly, tls, close_surely, io); // sends the closing alert
    } else {
        close_surely(io);
    }
    RB_GC_GUARD(io);
    RB_GC_GUARD(tls);
}

void stream_poison(struct stream *stream, const char *reason)
{
    if (!stream_is_open(stream)) return; // why is known, and a close by its user needs no reason
    stream->reason = reason;
    stream_shut(stream, false);
}

void stream_fail(struct stream *stream, int error, const char *doing)
{
    VALUE message = rb_sprintf("%s %" PRIsVALUE, doing, stream->peer);
    stream_poison(stream, "an earlier operation failed");
    rb_syserr_fail_str(error, message);
}

// ---- exchanges of requests and replies

void stream_expect(struct stream *stream, unsigned replies)
{
    stream_check_open(stream);
    if (replies > UINT32_MAX - stream->owed)
        rb_raise(rb_eArgError, "cannot expect %u more replies: %u are owed already", replies, stream->owed);
    stream->owed += replies;
}

void stream_replied(struct stream *stream, unsigned replies)
{
    if (replies > stream->owed)
        rb_raise(rb_eArgError, "%u replies were read, but only %u were owed", replies, stream->owed);
    stream->owed -= replies;
}

bool stream_set_resumable(struct stream *stream, bool resumable)
{
    bool before = stream->resuming != RESUME_NEVER;
    stream->resuming = resumable ? RESUME_POSSIBLE : RESUME_NEVER;
    return before;
}

void stream_set_shared(struct stream *stream, bool shared)
{
    stream->shared = shared;
}

bool stream_kept_open(const struct stream *stream)
{
    return stream->resuming == RESUME_NEEDED && stream_is_open(stream);
}

deadline_t stream_bound(struct stream *stream, deadline_t until)
{
    deadline_t before = stream->until;
    stream->until = until;
    return before;
}

bool stream_encrypted(const struct stream *stream)
{
    return !NIL_P(stream->tls);
}

void stream_life_define(void)
{
    eStreamBusy = rb_const_get(heddle_module, rb_intern("StreamBusy"));
    eStreamClosed = rb_const_get(heddle_module, rb_intern("StreamClosed"));
    rb_gc_register_mark_object(eStreamBusy);
    rb_gc_register_mark_object(eStreamClosed);
    eTLS = rb_eIOError;
    rb_gc_register_address(&eTLS);
}
