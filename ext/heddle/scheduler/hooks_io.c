// The hooks that move bytes and wait for descriptors.
#include "scheduler/bindings.h"

#include "loop/park.h"
#include "loop/send.h"
#include "loop/trace_io.h"
#include "loop/without_wait.h"
#include "shims.h"
#include "os/socket_io.h"
#include "task/task_loop.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

static VALUE cBasicSocket;

// Ruby's IO::READABLE and so on are poll(2)'s bits on every platform that has poll; asserted in hooks_io_define.
static short poll_events(VALUE events)
{
    return (short)(NUM2INT(events) & (POLLIN | POLLOUT | POLLPRI));
}

static VALUE io_error_or(int result)
{
    if (result < 0) wait_raise_error(-result, "waiting for an IO");
    return result ? INT2NUM(result) : Qfalse;
}

/*
 * call-seq: scheduler.io_wait(io, events, timeout = nil) -> Integer or false
 *
 * Parks the fiber until +io+ is ready for one of +events+ (IO::READABLE | IO::WRITABLE | IO::PRIORITY). Returns the
 * ready events, or false when +timeout+ seconds are over. A timeout of zero asks for the current state. With nil the
 * io's own timeout applies (IO#timeout), as without a scheduler; before Ruby 3.4, and in a task of Async's, that raises
 * IO::TimeoutError.
 *
 * Raises IOError for a closed +io+, SystemCallError for a descriptor that the system cannot wait for.
 */
static VALUE io_wait(int argc, VALUE *argv, VALUE self)
{
    rb_check_arity(argc, 2, 3);
    struct loop *loop = loop_entered(self);
    VALUE timeout = argc > 2 ? argv[2] : Qnil;
    VALUE own = NIL_P(timeout) ? shim_timeout(argv[0]) : Qnil;
    int64_t span = deadline_span_of_ruby(NIL_P(own) ? timeout : own);
    int descriptor = rb_io_descriptor(argv[0]);
    short events = poll_events(argv[1]);
    int result = loop_wait_descriptor(loop, descriptor, events, span);
    if (result > 0 && events & POLLPRI) return INT2NUM(loop_urgent(loop, descriptor, events));
    if (result || NIL_P(own)) return io_error_or(result);
    if (loop->owner != loop->root && is_external(task_of_owner(loop->owner))) shim_raise_timeout();
    return shim_answer_timeout();
}

// ---- io_read, io_write: (io, buffer, length) in 3.1, (io, buffer, length, offset) from 3.2 to 4.0. `length` is the
// minimum to move; zero asks for the bytes that are there, and -EAGAIN makes the caller wait with io_wait and call
// again. For 4.1 see io_read_once.
struct transfer {
    struct loop *loop;
    VALUE io;
    VALUE buffer;
    size_t least;
    size_t offset;
};

static struct transfer transfer_of(int argc, VALUE *argv, VALUE self)
{
    rb_check_arity(argc, 3, 4);
    struct transfer transfer = {.loop = loop_entered(self),
                                .io = argv[0],
                                .buffer = argv[1],
                                .least = NUM2SIZET(argv[2]),
                                .offset = argc > 3 ? NUM2SIZET(argv[3]) : 0};
    return transfer;
}

// Returns 1 when ready, or -errno. Raises Ruby's error if the IO's own timeout ends first.
static int wait_to_move(const struct transfer *transfer, int descriptor, short events)
{
    int64_t span = deadline_span(shim_timeout(transfer->io));
    int ready = loop_wait_descriptor(transfer->loop, descriptor, events, span);
    if (ready == 0) shim_raise_timeout();
    return ready;
}

// Returns whether the hook itself waits even if zero bytes are enough. Not for reading: Ruby calls the hook in the same
// way for IO#readpartial and IO#gets, which wait with io_wait after -EAGAIN, and for IO#read_nonblock, which must then
// report that nothing is there. For writing, Ruby calls the hook only for methods that may block (IO#write,
// IO#syswrite; IO#write_nonblock calls no hook), and waiting here saves a call of io_wait and another IO::Buffer. Not
// with a timeout, which only io_wait receives. And not from the IO's own buffer (IO#flush), which is freed when a C
// extension closes the IO without our notice. A String is locked meanwhile, and an IO::Buffer's address is read again
// after the wait.
static bool waits_here(const struct transfer *transfer, short events)
{
    if (transfer->least > 0) return true;
    if (events == POLLIN) return false;
    const void *base;
    size_t size;
    rb_io_buffer_get_bytes_for_reading(transfer->buffer, &base, &size);
    return !shim_has_timeout(transfer->io) && !shim_own_buffer(transfer->io, base);
}

// Moves bytes between the descriptor and the buffer, starting at `offset`.
typedef ssize_t (*move)(const struct transfer *transfer, int descriptor, size_t offset);

static bool is_socket(const struct transfer *transfer)
{
    return RTEST(rb_obj_is_kind_of(transfer->io, cBasicSocket));
}

static ssize_t read_into(const struct transfer *transfer, int descriptor, size_t offset)
{
    void *base;
    size_t size;
    rb_io_buffer_get_bytes_for_writing(transfer->buffer, &base, &size);
    if (offset > size) rb_raise(rb_eArgError, "offset %zu is past the end of a buffer of %zu bytes", offset, size);
    if (!is_socket(transfer)) return io_read(descriptor, (char *)base + offset, size - offset);
    ssize_t count = io_receive(descriptor, (char *)base + offset, size - offset);
    poller_note_read(&transfer->loop->poller, descriptor, transfer->loop->owner,
                     count > 0 && (size_t)count < size - offset);
    return count;
}

static ssize_t write_from(const struct transfer *transfer, int descriptor, size_t offset)
{
    const void *base;
    size_t size;
    rb_io_buffer_get_bytes_for_reading(transfer->buffer, &base, &size);
    if (offset > size) rb_raise(rb_eArgError, "offset %zu is past the end of a buffer of %zu bytes", offset, size);
    if (!is_socket(transfer)) return io_write(descriptor, (const char *)base + offset, size - offset);
    return io_transmit(descriptor, (const char *)base + offset, size - offset);
}

// The kernel never keeps the buffer: each step is a non-blocking call, and the buffer's address is read again after
// each wait.
static VALUE transfer_bytes(struct transfer transfer, move step, short events)
{
    bool waits = waits_here(&transfer, events);
    bool wait_first =
        waits && events == POLLIN && poller_drained(&transfer.loop->poller, rb_io_descriptor(transfer.io));
    size_t moved = 0;
    int descriptor = rb_io_descriptor(transfer.io);
    loop_check_pending(transfer.loop, descriptor);
    if (events == POLLOUT) loop_send_waiting(transfer.loop, rb_io_descriptor(transfer.io));
    for (;;) {
        descriptor = rb_io_descriptor(transfer.io); // raises if the IO was closed during the wait
        ssize_t count = -EAGAIN;
        if (!wait_first) {
            transfer.loop->statistics.system_calls++;
            count = step(&transfer, descriptor, transfer.offset + moved);
            trace_io(transfer.loop, descriptor, count, events == POLLOUT);
        }
        wait_first = false;
        if (count == -EAGAIN && waits) {
            int ready = wait_to_move(&transfer, descriptor, events);
            if (ready == -ECANCELED) wait_raise_error(ECANCELED, "waiting for an IO");
            if (ready < 0) return moved ? SIZET2NUM(moved) : INT2NUM(ready);
            continue;
        }
        if (count < 0) { // -EAGAIN, too, may repeat until another fiber has sent something
            loop_yield_if_spent_after(transfer.loop, descriptor, moved);
            return moved ? SIZET2NUM(moved) : INT2NUM((int)count);
        }
        moved += (size_t)count;
        if (count == 0 || moved >= transfer.least) break;
    }
    loop_yield_if_spent_after(transfer.loop, descriptor, moved);
    return SIZET2NUM(moved);
}

/*
 * call-seq: scheduler.io_read(io, buffer, length, offset = 0) -> Integer
 *
 * Reads at least +length+ bytes (with 0: the bytes that are there) into +buffer+, an IO::Buffer, starting at +offset+.
 * Returns the number of bytes, which is smaller at the end of the file, or -errno. With 0 it may return -EAGAIN: the
 * caller must wait.
 */
static VALUE hook_read(int argc, VALUE *argv, VALUE self)
{
    return transfer_bytes(transfer_of(argc, argv, self), read_into, POLLIN);
}

/*
 * call-seq: scheduler.io_write(io, buffer, length, offset = 0) -> Integer
 *
 * Writes at least +length+ bytes of +buffer+, starting at +offset+. Returns the number of bytes, or -errno.
 */
static VALUE hook_write(int argc, VALUE *argv, VALUE self)
{
    return transfer_bytes(transfer_of(argc, argv, self), write_from, POLLOUT);
}

// ---- io_pread, io_pwrite: (io, buffer, length, from) in 3.1, (io, buffer, from, length, offset) from 3.2 to 4.0.
// `from` is the position in the file. Only files have positions, and files are always ready: these hooks never wait.

typedef ssize_t (*move_at)(int descriptor, VALUE buffer, size_t offset, size_t most, off_t from);

static ssize_t read_at(int descriptor, VALUE buffer, size_t offset, size_t most, off_t from)
{
    void *base;
    size_t size;
    rb_io_buffer_get_bytes_for_writing(buffer, &base, &size);
    if (offset > size) rb_raise(rb_eArgError, "offset %zu is past the end of a buffer of %zu bytes", offset, size);
    if (most > size - offset) most = size - offset;
    ssize_t count;
    do {
        count = pread(descriptor, (char *)base + offset, most, from);
    } while (count < 0 && errno == EINTR);
    return count < 0 ? -errno : count;
}

static ssize_t write_at(int descriptor, VALUE buffer, size_t offset, size_t most, off_t from)
{
    const void *base;
    size_t size;
    rb_io_buffer_get_bytes_for_reading(buffer, &base, &size);
    if (offset > size) rb_raise(rb_eArgError, "offset %zu is past the end of a buffer of %zu bytes", offset, size);
    if (most > size - offset) most = size - offset;
    ssize_t count;
    do {
        count = pwrite(descriptor, (const char *)base + offset, most, from);
    } while (count < 0 && errno == EINTR);
    return count < 0 ? -errno : count;
}

static VALUE transfer_at(int argc, VALUE *argv, VALUE self, move_at step)
{
    rb_check_arity(argc, 4, 5);
    VALUE length = argv[argc == 4 ? 2 : 3];
    off_t from = NUM2OFFT(argv[argc == 4 ? 3 : 2]);
    VALUE arguments[4] = {argv[0], argv[1], length, argc == 4 ? INT2FIX(0) : argv[4]};
    struct transfer transfer = transfer_of(4, arguments, self);
    int descriptor = rb_io_descriptor(transfer.io);
    size_t moved = 0;
    do {
        transfer.loop->statistics.system_calls++;
        // Moves no more than asked for, though the contract allows it: the following bytes of the file are not the
        // caller's.
        size_t most = transfer.least ? transfer.least - moved : SIZE_MAX;
        ssize_t count = step(descriptor, transfer.buffer, transfer.offset + moved, most, from + (off_t)moved);
        if (count < 0) return moved ? SIZET2NUM(moved) : INT2NUM((int)count);
        if (count == 0) break;
        moved += (size_t)count;
    } while (moved < transfer.least);
    loop_yield_if_spent_after(transfer.loop, descriptor, moved);
    return SIZET2NUM(moved);
}

/*
 * call-seq: scheduler.io_pread(io, buffer, from, length, offset) -> Integer
 *
 * Like #io_read, from the byte +from+ of a file, without moving the file's position. (Ruby 3.1: io, buffer, length,
 * from.)
 */
static VALUE io_pread(int argc, VALUE *argv, VALUE self)
{
    return transfer_at(argc, argv, self, read_at);
}

/*
 * call-seq: scheduler.io_pwrite(io, buffer, from, length, offset) -> Integer
 *
 * Like #io_write, from the byte +from+ of a file, without moving the file's position. (Ruby 3.1: io, buffer, length,
 * from.)
 */
static VALUE io_pwrite(int argc, VALUE *argv, VALUE self)
{
    return transfer_at(argc, argv, self, write_at);
}

// ---- the same hooks for Ruby >= 4.1, which swaps offset and length, passes the maximum as length, wants a single
// transfer and waits itself after -EAGAIN. With the older hooks that caller would spin, so hooks_io_define detects the
// version.

static ssize_t read_some(int descriptor, VALUE buffer, size_t offset, size_t most)
{
    void *base;
    size_t size;
    rb_io_buffer_get_bytes_for_writing(buffer, &base, &size);
    if (offset > size) rb_raise(rb_eArgError, "offset %zu is past the end of a buffer of %zu bytes", offset, size);
    return io_receive(descriptor, (char *)base + offset, most < size - offset ? most : size - offset);
}

static ssize_t write_some(int descriptor, VALUE buffer, size_t offset, size_t most)
{
    const void *base;
    size_t size;
    rb_io_buffer_get_bytes_for_reading(buffer, &base, &size);
    if (offset > size) rb_raise(rb_eArgError, "offset %zu is past the end of a buffer of %zu bytes", offset, size);
    return io_transmit(descriptor, (const char *)base + offset, most < size - offset ? most : size - offset);
}

static VALUE transfer_once(VALUE self, VALUE io, VALUE buffer, VALUE offset, VALUE most, bool writes)
{
    VALUE arguments[4] = {io, buffer, most, offset};
    struct transfer transfer = transfer_of(4, arguments, self);
    int descriptor = rb_io_descriptor(io);
    loop_check_pending(transfer.loop, descriptor);
    if (writes) loop_send_waiting(transfer.loop, descriptor);
    transfer.loop->statistics.system_calls++;
    ssize_t count = (writes ? write_some : read_some)(descriptor, buffer, transfer.offset, transfer.least);
    loop_yield_if_spent_after(transfer.loop, descriptor, count > 0 ? (size_t)count : 0);
    return SSIZET2NUM(count);
}

/*
 * call-seq: scheduler.io_read_once(io, buffer, offset, length) -> Integer
 *
 * The hook +io_read+ of Ruby >= 4.1: reads at most +length+ bytes, once. Returns the number of bytes, or -errno.
 *
 * @api private
 */
static VALUE io_read_once(VALUE self, VALUE io, VALUE buffer, VALUE offset, VALUE length)
{
    return transfer_once(self, io, buffer, offset, length, false);
}

/*
 * call-seq: scheduler.io_write_once(io, buffer, offset, length) -> Integer
 *
 * The hook +io_write+ of Ruby >= 4.1.
 *
 * @api private
 */
static VALUE io_write_once(VALUE self, VALUE io, VALUE buffer, VALUE offset, VALUE length)
{
    return transfer_once(self, io, buffer, offset, length, true);
}

static VALUE transfer_at_once(VALUE self, VALUE io, VALUE buffer, VALUE from, VALUE offset, VALUE most, move_at step)
{
    VALUE arguments[4] = {io, buffer, most, offset};
    struct transfer transfer = transfer_of(4, arguments, self);
    transfer.loop->statistics.system_calls++;
    return SSIZET2NUM(step(rb_io_descriptor(io), buffer, transfer.offset, transfer.least, NUM2OFFT(from)));
}

/*
 * call-seq: scheduler.io_pread_once(io, buffer, from, offset, length) -> Integer
 *
 * The hook +io_pread+ of Ruby >= 4.1.
 *
 * @api private
 */
static VALUE io_pread_once(VALUE self, VALUE io, VALUE buffer, VALUE from, VALUE offset, VALUE length)
{
    return transfer_at_once(self, io, buffer, from, offset, length, read_at);
}

/*
 * call-seq: scheduler.io_pwrite_once(io, buffer, from, offset, length) -> Integer
 *
 * The hook +io_pwrite+ of Ruby >= 4.1.
 *
 * @api private
 */
static VALUE io_pwrite_once(VALUE self, VALUE io, VALUE buffer, VALUE from, VALUE offset, VALUE length)
{
    return transfer_at_once(self, io, buffer, from, offset, length, write_at);
}

void hooks_io_define(VALUE scheduler_class)
{
    _Static_assert(RB_WAITFD_IN == POLLIN && RB_WAITFD_OUT == POLLOUT && RB_WAITFD_PRI == POLLPRI,
                   "IO events must equal poll's bits");
    rb_gc_register_mark_object(cBasicSocket = rb_path2class("BasicSocket"));
    rb_define_method(scheduler_class, "io_wait", io_wait, -1);
    rb_define_method(scheduler_class, "io_read_once", io_read_once, 4);
    rb_define_method(scheduler_class, "io_write_once", io_write_once, 4);
    rb_define_method(scheduler_class, "io_pread_once", io_pread_once, 5);
    rb_define_method(scheduler_class, "io_pwrite_once", io_pwrite_once, 5);
    if (shim_single_transfers()) {
        rb_define_alias(scheduler_class, "io_read", "io_read_once");
        rb_define_alias(scheduler_class, "io_write", "io_write_once");
        rb_define_alias(scheduler_class, "io_pread", "io_pread_once");
        rb_define_alias(scheduler_class, "io_pwrite", "io_pwrite_once");
        return;
    }
    rb_define_method(scheduler_class, "io_read", hook_read, -1);
    rb_define_method(scheduler_class, "io_write", hook_write, -1);
    rb_define_method(scheduler_class, "io_pread", io_pread, -1);
    rb_define_method(scheduler_class, "io_pwrite", io_pwrite, -1);
}
