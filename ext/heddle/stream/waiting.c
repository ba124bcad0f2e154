// Waits until the socket is ready, in a loop, under another scheduler or in a plain thread: time limits, and what an
// interruption does to the stream.
#include "stream/internals.h"

#include "os/budget.h"
#include "loop/park.h"
#include "os/fork.h"
#include "scope/deadline_scope.h"
#include "scope/thread_wait.h"
#include "shims.h"
#include "task/current.h"

#include <errno.h>

struct waiting {
    struct stream *stream;
    deadline_t until;
    unsigned forks; // fork_count() at the start
    short events;
    short found;
};

static void check_result(int error)
{
    if (error == ECANCELED) rb_raise(rb_eIOError, "stream closed in another thread");
    rb_syserr_fail(error, "waiting for a stream's socket");
}

static int64_t left(deadline_t until)
{
    if (until == DEADLINE_NEVER) return DEADLINE_NEVER;
    int64_t span = until - deadline_now();
    return span > 0 ? span : 0;
}

static short stream_in_loop(struct waiting *waiting, struct loop *loop)
{
    loop_enter(loop);
    int found = loop_wait_descriptor(loop, waiting->stream->descriptor, waiting->events, left(waiting->until));
    if (found < 0) check_result(-found);
    return (short)found;
}

static deadline_t earlier(deadline_t one, deadline_t other)
{
    return one < other ? one : other;
}

static VALUE call_io_wait(VALUE argument)
{
    struct waiting *waiting = (struct waiting *)argument;
    struct stream *stream = waiting->stream;
    for (;;) {
        deadline_t until = earlier(deadline_in_force(), waiting->until);
        VALUE timeout = until == DEADLINE_NEVER ? Qnil : DBL2NUM((double)left(until) / 1e9);
        VALUE found =
            rb_fiber_scheduler_io_wait(rb_fiber_scheduler_current(), stream->io, INT2FIX(waiting->events), timeout);
        waiting->found = RTEST(found) ? (short)NUM2INT(found) : 0;
        if (waiting->found || !stream_is_open(stream)) return Qnil;
        deadline_refuse_late();
        if (left(waiting->until) == 0) return Qnil;
        // A spurious wake-up of the fiber, or a timer that was early.
    }
}

static VALUE left_other_scheduler(VALUE argument)
{
    const struct waiting *waiting = (const struct waiting *)argument;
    // A child of fork has reset this count, and has copies of the parent's fibers, too.
    if (waiting->forks == waiting->stream->forks) waiting->stream->other_scheduler_waits--;
    return Qnil;
}

static short stream_in_other_scheduler(struct waiting *waiting)
{
    waiting->forks = waiting->stream->forks;
    waiting->stream->other_scheduler_waits++;
    rb_ensure(call_io_wait, (VALUE)waiting, left_other_scheduler, (VALUE)waiting);
    return waiting->found;
}

// An error or a hang-up answers any question: the next read or write reports which it is.
static short waiting_answer(const struct pollfd *asked)
{
    return asked->revents & (POLLERR | POLLHUP) ? asked->events : (short)(asked->revents & asked->events);
}

static short stream_in_thread(struct waiting *waiting)
{
    struct stream *stream = waiting->stream;
    for (;;) {
        struct pollfd asked = {.fd = stream->descriptor, .events = waiting->events};
        struct gvl_wait wait = {.descriptors = &asked, .count = 1, .io = stream->io};
        int found = thread_wait(&wait, waiting->until);
        stream->statistics.looks += wait.looks;
        stream->statistics.polls += wait.looks + wait.waits;
        if (!stream_is_open(stream)) return 0;
        if (found > 0) return waiting_answer(&asked);
        if (found < 0 && found != -EINTR) check_result(-found);
        if (found == 0 && left(waiting->until) == 0) return 0;
    }
}

static VALUE wait_body(VALUE argument)
{
    struct waiting *waiting = (struct waiting *)argument;
    struct context context = context_of_fiber();
    if (NIL_P(context.scheduler)) {
        waiting->found = stream_in_thread(waiting);
    } else if (context.loop) {
        waiting->found = stream_in_loop(waiting, context.loop);
    } else {
        waiting->found = stream_in_other_scheduler(waiting);
    }
    return Qnil;
}

struct guard {
    struct stream *stream;
    VALUE (*body)(VALUE);
    VALUE argument;
    unsigned forks; // fork_count() at the start
    enum stream_side side;
    enum stream_guard kind;
    bool complete;
};

static VALUE guard_body(VALUE argument)
{
    struct guard *guard = (struct guard *)argument;
    VALUE result = guard->body(guard->argument);
    guard->complete = true;
    return result;
}

// Returns whether the stream stays open after an exception in a wait of that side, and records that.
static bool keep_open(struct stream *stream, enum stream_side side)
{
    if (stream->resuming == RESUME_NEVER || !stream_is_open(stream) || side != SIDE_READ) return false;
    if (!stream->shared && (buffer_used(&stream->out) || buffer_used(&stream->piggybacked))) return false;
    stream->resuming = RESUME_NEEDED;
    return true;
}

static VALUE guard_end(VALUE argument)
{
    const struct guard *guard = (const struct guard *)argument;
    struct stream *stream = guard->stream;
    if (guard->forks == stream->forks) { // otherwise a child of fork has reset these
        stream->busy[guard->side] = false;
        stream->calling[guard->side] = 0;
    }
    if (stream->state == STREAM_SHUT && !stream->other_scheduler_waits) stream_shut(stream, false);
    if (guard->complete) return Qnil;
    if (guard->kind != GUARD_CALL && guard->forks == stream->forks && keep_open(stream, guard->side)) return Qnil;
    if (guard->kind != GUARD_LOOK || stream->owed) {
        // In a TLS call, OpenSSL may have raised because of the peer.
        if (stream_is_open(stream) && guard->kind != GUARD_CALL) stream->interrupted = true;
        stream_poison(stream, "an operation was interrupted");
    }
    return Qnil;
}

VALUE stream_guarded(struct stream *stream, enum stream_side side, enum stream_guard kind, VALUE (*body)(VALUE),
                     VALUE argument)
{
    struct guard guard = {
        .stream = stream, .body = body, .argument = argument, .forks = stream->forks, .side = side, .kind = kind};
    HEDDLE_ASSERT(!stream->busy[side]);
    stream->busy[side] = true;
    stream->calling[side] = kind == GUARD_CALL ? rb_thread_current() : 0;
    VALUE result = rb_ensure(guard_body, (VALUE)&guard, guard_end, (VALUE)&guard);
    if (!stream_is_open(stream)) {
        if (stream->reason) stream_check_open(stream);
        rb_raise(rb_eIOError, "stream closed in another thread");
    }
    stream_check_socket(stream);
    return result;
}

RBIMPL_ATTR_NORETURN()
static void raise_timeout(struct stream *stream, const struct stream_limit *limit)
{
    const char *end = keep_open(stream, limit->side) ? "" : "; the stream is closed";
    if (*end) stream_poison(stream, "its time limit was exceeded");
    const char *doing = limit->side == SIDE_READ ? "reading from" : "writing to";
    if (limit->span != DEADLINE_NEVER && limit->until <= stream->until)
        rb_raise(heddle_eDeadlineExceeded, "the %g s for %s %" PRIsVALUE " are over%s", (double)limit->span / 1e9,
                 doing, stream->peer, end);
    rb_raise(heddle_eDeadlineExceeded, "the time limit of an exchange with %" PRIsVALUE " passed while %s the peer%s",
             stream->peer, doing, end);
}

static void begin_limit(struct stream_limit *limit)
{
    if (!limit->until) limit->until = deadline_in(limit->span);
}

static void renew_budget(struct stream *stream)
{
    stream->since_wait = 0;
    stream->bytes_since_wait = 0;
    stream->parsed_since_wait = 0;
}

short stream_wait(struct stream *stream, enum stream_side side, short events, struct stream_limit *limit)
{
    begin_limit(limit);
    struct waiting waiting = {.stream = stream, .events = events, .until = earlier(limit->until, stream->until)};
    // Otherwise a peer that always has bytes ready could extend the time at will.
    bool strict = limit->waited || stream->until <= limit->until;
    if (strict && waiting.until != DEADLINE_NEVER && waiting.until <= deadline_now()) raise_timeout(stream, limit);
    limit->waited = true;
    stream->statistics.waits++;
    renew_budget(stream);
    stream_guarded(stream, side, GUARD_WAIT, wait_body, (VALUE)&waiting);
    if (!waiting.found) raise_timeout(stream, limit);
    return waiting.found;
}

short stream_read_events(const struct stream *stream, bool unsent)
{
    short events = stream->tls_wants[SIDE_READ] ? stream->tls_wants[SIDE_READ] : POLLIN;
    if (unsent) events |= stream->tls_wants[SIDE_WRITE] ? stream->tls_wants[SIDE_WRITE] : POLLOUT;
    return events;
}

short stream_wait_to_read(struct stream *stream, bool unsent, struct stream_limit *limit)
{
    short events = stream_read_events(stream, unsent);
    begin_limit(limit);
    if (!unsent) limit->sending = 0;
    if (unsent && !limit->sending) {
        struct stream_limit sending = stream_write_limit(stream);
        begin_limit(&sending);
        limit->sending = sending.until;
    }
    if (!unsent || limit->until <= limit->sending) return stream_wait(stream, SIDE_READ, events, limit);
    struct stream_limit sending = stream_write_limit(stream);
    sending.until = limit->sending;
    sending.waited = limit->waited;
    limit->waited = true;
    return stream_wait(stream, SIDE_READ, events, &sending);
}

short stream_wait_until(struct stream *stream, enum stream_side side, short events, deadline_t until)
{
    struct waiting waiting = {.stream = stream, .events = events, .until = earlier(until, stream->until)};
    stream->statistics.waits++;
    stream_guarded(stream, side, GUARD_LOOK, wait_body, (VALUE)&waiting);
    if (!waiting.found) stream_check_time(stream, side);
    return waiting.found;
}

void stream_check_time(struct stream *stream, enum stream_side side)
{
    const struct stream_limit none = {.span = DEADLINE_NEVER, .until = DEADLINE_NEVER, .side = side};
    if (stream->until != DEADLINE_NEVER && stream->until <= deadline_now()) raise_timeout(stream, &none);
}

static VALUE give_way(VALUE unused)
{
    (void)unused;
    budget_give_way_to_all();
    return Qnil;
}

void stream_spend(struct stream *stream, enum stream_side side, struct stream_limit *limit)
{
    if (++stream->since_wait < BUDGET_OPERATIONS && stream->bytes_since_wait < BUDGET_BYTES) return;
    renew_budget(stream);
    begin_limit(limit);
    deadline_t until = earlier(limit->until, stream->until);
    if (until != DEADLINE_NEVER && until <= deadline_now()) raise_timeout(stream, limit);
    stream_guarded(stream, side, GUARD_WAIT, give_way, Qnil);
}

// As many bytes as one receive may put into the buffer: a wait for more bytes renews the budget.
enum { PARSED_AT_ONCE = BUFFER_KEEP };

void stream_parsed(struct stream *stream, size_t bytes)
{
    stream->parsed_since_wait += bytes;
    if (stream->parsed_since_wait <= PARSED_AT_ONCE) return;
    stream_enter(stream, SIDE_READ);
    renew_budget(stream);
    stream_check_time(stream, SIDE_READ);
    stream_guarded(stream, SIDE_READ, GUARD_LOOK, give_way, Qnil);
}
