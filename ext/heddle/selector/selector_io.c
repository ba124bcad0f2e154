// Heddle::Selector: the hooks that wait for descriptors and move bytes. They neither change O_NONBLOCK nor block.
#include "selector/bindings.h"
#include "selector/selector.h"
#include "shims.h"
#include "socket_io.h"

#include <errno.h>
#include <poll.h>

static VALUE cBasicSocket;

/*
 * call-seq: selector.io_wait(fiber, io, events) -> Integer or false
 *
 * Switches to the loop fiber until +io+ is ready for one of +events+ (IO::READABLE | IO::WRITABLE | IO::PRIORITY).
 * Returns the ready events, or false when something else resumes +fiber+, the caller.
 *
 * Raises IOError when the +io+ is closed meanwhile, SystemCallError for a descriptor that the system cannot wait for.
 */
static VALUE io_wait(VALUE self, VALUE fiber, VALUE io, VALUE events)
{
    // Ruby's IO::READABLE and so on are poll(2)'s bits.
    short asked = (short)(NUM2INT(events) & (POLLIN | POLLOUT | POLLPRI));
    short found = selector_wait(selector_open(self), fiber, rb_io_descriptor(io), asked);
    return found ? INT2NUM(found) : Qfalse;
}

// ---- io_read, io_write: (fiber, io, buffer, length, offset = 0) up to Ruby 4.0. `length` is the minimum to move; zero
// asks for one transfer without a wait.

struct transfer {
    struct selector *selector;
    VALUE fiber;
    VALUE io;
    VALUE buffer;
    size_t least;
    size_t offset;
};

static struct transfer transfer_of(int argc, VALUE *argv, VALUE self)
{
    rb_check_arity(argc, 4, 5);
    struct transfer transfer = {.selector = selector_open(self),
                                .fiber = argv[0],
                                .io = argv[1],
                                .buffer = argv[2],
                                .least = NUM2SIZET(argv[3]),
                                .offset = argc > 4 ? NUM2SIZET(argv[4]) : 0};
    return transfer;
}

static bool is_socket(VALUE io)
{
    return RTEST(rb_obj_is_kind_of(io, cBasicSocket));
}

// Moves at most `most` bytes once, beginning at the buffer's `offset`. Returns their number, or -errno. The buffer's
// address is read each time: another fiber may resize the buffer.
typedef ssize_t (*move)(VALUE io, int descriptor, VALUE buffer, size_t offset, size_t most);

static ssize_t read_into(VALUE io, int descriptor, VALUE buffer, size_t offset, size_t most)
{
    void *base;
    size_t size;
    rb_io_buffer_get_bytes_for_writing(buffer, &base, &size);
    if (offset > size) return -EINVAL;
    if (most > size - offset) most = size - offset;
    if (most == 0) return 0;
    return (is_socket(io) ? io_receive : io_read)(descriptor, (char *)base + offset, most);
}

static ssize_t write_from(VALUE io, int descriptor, VALUE buffer, size_t offset, size_t most)
{
    const void *base;
    size_t size;
    rb_io_buffer_get_bytes_for_reading(buffer, &base, &size);
    if (offset > size) return -EINVAL;
    if (most > size - offset) most = size - offset;
    if (most == 0) return 0;
    return (is_socket(io) ? io_transmit : io_write)(descriptor, (const char *)base + offset, most);
}

static VALUE transfer_bytes(struct transfer transfer, move step, short events)
{
    size_t moved = 0;
    for (;;) {
        int descriptor = rb_io_descriptor(transfer.io); // raises if the IO was closed during the wait
        ssize_t count = step(transfer.io, descriptor, transfer.buffer, transfer.offset + moved, SIZE_MAX);
        if (count == -EAGAIN && transfer.least > 0) {
            selector_wait(transfer.selector, transfer.fiber, descriptor, events);
            continue;
        }
        if (count < 0) return moved ? SIZET2NUM(moved) : INT2NUM((int)count);
        moved += (size_t)count;
        if (count == 0 || moved >= transfer.least) return SIZET2NUM(moved);
    }
}

/*
 * call-seq: selector.io_read(fiber, io, buffer, length, offset = 0) -> Integer
 *
 * Reads at least +length+ bytes (with 0: the bytes that are there) into +buffer+, an IO::Buffer, beginning at +offset+.
 * Returns the number of bytes, which is smaller at the end of the file and of the buffer, or -errno.
 */
static VALUE hook_read(int argc, VALUE *argv, VALUE self)
{
    return transfer_bytes(transfer_of(argc, argv, self), read_into, POLLIN);
}

/*
 * call-seq: selector.io_write(fiber, io, buffer, length, offset = 0) -> Integer
 *
 * Writes at least +length+ bytes of +buffer+, beginning at +offset+. Returns the number of bytes, or -errno.
 */
static VALUE hook_write(int argc, VALUE *argv, VALUE self)
{
    return transfer_bytes(transfer_of(argc, argv, self), write_from, POLLOUT);
}

// ---- (fiber, io, buffer, offset, length) from Ruby 4.1 on: one transfer of at most `length` bytes.

static VALUE transfer_once(VALUE self, VALUE io, VALUE buffer, VALUE offset, VALUE most, move step)
{
    selector_open(self);
    return SSIZET2NUM(step(io, rb_io_descriptor(io), buffer, NUM2SIZET(offset), NUM2SIZET(most)));
}

/*
 * call-seq: selector.io_read_once(fiber, io, buffer, offset, length) -> Integer
 *
 * The method +io_read+ for Ruby >= 4.1: reads at most +length+ bytes, once. Returns the number of bytes, or -errno.
 */
static VALUE io_read_once(VALUE self, VALUE fiber, VALUE io, VALUE buffer, VALUE offset, VALUE length)
{
    (void)fiber;
    return transfer_once(self, io, buffer, offset, length, read_into);
}

/*
 * call-seq: selector.io_write_once(fiber, io, buffer, offset, length) -> Integer
 *
 * The method +io_write+ for Ruby >= 4.1.
 */
static VALUE io_write_once(VALUE self, VALUE fiber, VALUE io, VALUE buffer, VALUE offset, VALUE length)
{
    (void)fiber;
    return transfer_once(self, io, buffer, offset, length, write_from);
}

void selector_io_define(VALUE selector_class)
{
    rb_gc_register_mark_object(cBasicSocket = rb_path2class("BasicSocket"));
    rb_define_method(selector_class, "io_wait", io_wait, 3);
    rb_define_method(selector_class, "io_read", hook_read, -1);
    rb_define_method(selector_class, "io_write", hook_write, -1);
    rb_define_method(selector_class, "io_read_once", io_read_once, 5);
    rb_define_method(selector_class, "io_write_once", io_write_once, 5);
    if (!shim_single_transfers()) return;
    rb_define_alias(selector_class, "io_read", "io_read_once");
    rb_define_alias(selector_class, "io_write", "io_write_once");
}
