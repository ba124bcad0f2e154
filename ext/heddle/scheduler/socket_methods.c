// Socket methods that tasks call often, without the detour through Ruby's hooks.
#include "scheduler/bindings.h"

#include "os/budget.h"
#include "loop/park.h"
#include "loop/send.h"
#include "loop/trace_io.h"
#include "loop/without_wait.h"
#include "shims.h"
#include "os/socket_io.h"
#include "task/external.h"
#include "task/task_loop.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

// BasicSocket#readpartial and #write, which sockets inherit from IO, for our tasks. For them Ruby calls the hooks
// io_read and io_write, and makes an IO::Buffer each time, which costs as much as the system call. These methods move
// the bytes directly between the String and the kernel. Every special case (an encoding, a timeout, read-ahead bytes, a
// closed IO) is left to Ruby and the hooks. For #read_nonblock, which Net::HTTP and others use, see below.

static ID id_new, id_readpartial, id_write, id_read_nonblock, id_original_read_nonblock;
static VALUE sym_wait_readable;

// The loop that runs the calling fiber; NULL for a blocking fiber, another scheduler, or a subclass of ours, which
// may override hooks.
static struct loop *loop_in_charge(void)
{
    VALUE scheduler = rb_fiber_scheduler_current();
    return NIL_P(scheduler) ? NULL : loop_of_plain(scheduler);
}

// Also NULL if the program has redefined or prepended IO's method, which must then be called.
static struct loop *loop_in_place_of(ID method)
{
    return rb_method_basic_definition_p(rb_cIO, method) ? loop_in_charge() : NULL;
}

// Fails as Ruby's own methods do: with the path of a UNIXSocket, and the name of their function.
static void fail(VALUE self, int error, const char *function)
{
    VALUE path = shim_path(self);
    if (NIL_P(path)) rb_syserr_fail(error, NULL);
    VALUE arguments[2] = {path, rb_str_new_cstr(function)};
    rb_exc_raise(rb_funcallv(CLASS_OF(rb_syserr_new(error, NULL)), id_new, 2, arguments));
}

static void await(struct loop *loop, VALUE self, int descriptor, short events, const char *function)
{
    int ready = loop_wait_descriptor(loop, descriptor, events, DEADLINE_NEVER);
    if (ready == -ECANCELED) wait_raise_error(ECANCELED, function);
    if (ready < 0) fail(self, -ready, function);
}

static ssize_t receive_into(struct loop *loop, int descriptor, char *base, long most)
{
    loop->statistics.system_calls++;
    ssize_t count = io_receive(descriptor, base, (size_t)most);
    trace_io(loop, descriptor, count, false);
    poller_note_read(&loop->poller, descriptor, loop->owner, count > 0 && count < most);
    return count;
}

static VALUE socket_methods_receive(struct loop *loop, int descriptor, long most, ssize_t *count)
{
    if (most <= LOOP_SCRATCH) {
        char *scratch = loop_scratch(loop);
        *count = receive_into(loop, descriptor, scratch, most);
        return *count > 0 ? rb_str_new(scratch, *count) : 0;
    }
    VALUE bytes = rb_str_new(NULL, most);
    *count = receive_into(loop, descriptor, RSTRING_PTR(bytes), most);
    return rb_str_resize(bytes, *count > 0 ? *count : 0);
}

/*
 * call-seq: socket.readpartial(maxlen, outbuf = nil) -> String
 *
 * IO#readpartial.
 */
static VALUE readpartial(int argc, VALUE *argv, VALUE self)
{
    struct loop *loop;
    int descriptor;
    if (argc != 1 || !FIXNUM_P(argv[0]) || FIX2LONG(argv[0]) <= 0 || !(loop = loop_in_place_of(id_readpartial)) ||
        !shim_open_for(self, FMODE_READABLE) || (descriptor = shim_plain_reader(self)) < 0)
        return rb_call_super(argc, argv);
    loop_enter(loop);
    loop_check_pending(loop, descriptor);
    bool wait_first = poller_drained(&loop->poller, descriptor);
    for (;;) {
        if (!wait_first) {
            ssize_t count;
            VALUE bytes = socket_methods_receive(loop, descriptor, FIX2LONG(argv[0]), &count);
            if (count > 0) {
                loop_yield_if_spent(loop, (size_t)count);
                return bytes;
            }
            if (count == 0) rb_eof_error();
            if (count != -EAGAIN) fail(self, (int)-count, "io_getpartial");
        }
        wait_first = false;
        await(loop, self, descriptor, POLLIN, "io_getpartial");
        // Another fiber may have used the IO meanwhile. After its close_read the kernel reports the end of the file.
        if ((descriptor = shim_plain_reader(self)) < 0) return rb_call_super(argc, argv);
    }
}

// Returns whether Ruby's own method would allocate a String of that many bytes, or grow this one, before it knows
// whether bytes are there.
static bool would_make_room(VALUE buffer, long most)
{
    if (NIL_P(buffer)) return true;
    return RB_TYPE_P(buffer, T_STRING) && rb_str_capacity(buffer) < (size_t)most;
}

// Spends budget (budget.h) for code that reads without ever waiting, as Net::HTTP does while its server is faster.
static void spend_on_reading(struct loop *loop)
{
    loop_enter(loop);
    loop_spend(loop, 0);
}

static void note_received(struct loop *loop, size_t count)
{
    loop->bytes_since_switch += BUDGET_PARSED_IN_RUBY * count;
}

/*
 * call-seq: socket.__read_nonblock(maxlen, outbuf, exception) -> String, nil or :wait_readable
 *
 * Called by BasicSocket#read_nonblock. Ruby's own method first allocates +maxlen+ bytes, although mostly no bytes are
 * there yet, and the caller then waits while holding them: with Net::HTTP that is a page of memory and a page fault for
 * each reply; Puma asks for 64 KiB for each request, and falcon for 256 KiB. This method allocates only the bytes that
 * came.
 */
static VALUE read_nonblock(VALUE self, VALUE length, VALUE buffer, VALUE exception)
{
    // Before anything is received: an exception here loses no bytes.
    struct loop *loop = loop_in_charge();
    if (loop) spend_on_reading(loop);
    int descriptor;
    long most = FIXNUM_P(length) ? FIX2LONG(length) : 0;
    if (most <= 0 || most > LOOP_LONG_SCRATCH || !would_make_room(buffer, most) || !loop ||
        (descriptor = shim_plain_reader(self)) < 0) {
        VALUE arguments[3] = {length, buffer, exception};
        VALUE received = rb_funcallv(self, id_original_read_nonblock, 3, arguments);
        if (!loop || !RB_TYPE_P(received, T_STRING)) return received;
        if ((descriptor = shim_plain_reader(self)) >= 0)
            poller_note_read(&loop->poller, descriptor, loop->owner, false);
        note_received(loop, (size_t)RSTRING_LEN(received));
        return received;
    }
    if (!NIL_P(buffer)) rb_str_modify(buffer); // raises before bytes are taken
    char *scratch = most > LOOP_SCRATCH ? loop_long_scratch(loop) : loop_scratch(loop);
    ssize_t count = receive_into(loop, descriptor, scratch, most);
    bool raises = exception != Qfalse;
    if (count == -EAGAIN) {
        if (raises) rb_readwrite_syserr_fail(RB_IO_WAIT_READABLE, EAGAIN, "read would block");
        return sym_wait_readable;
    }
    if (count < 0) fail(self, (int)-count, "rsock_read_nonblock");
    note_received(loop, (size_t)count);
    if (NIL_P(buffer)) {
        if (count) return rb_str_new(scratch, count);
    } else {
        rb_str_resize(buffer, count);
        memcpy(RSTRING_PTR(buffer), scratch, (size_t)count);
        if (count) return buffer;
    }
    if (raises) rb_eof_error();
    return Qnil;
}

// Sends the rest. Another fiber may change the String during the wait, so this keeps the original bytes.
static void send_rest(struct loop *loop, VALUE self, VALUE bytes, size_t sent)
{
    bytes = rb_str_new_frozen(bytes);
    while (sent < (size_t)RSTRING_LEN(bytes)) {
        int descriptor = rb_io_descriptor(self); // raises if the socket was closed during the wait
        loop->statistics.system_calls++;
        ssize_t count = io_transmit(descriptor, RSTRING_PTR(bytes) + sent, (size_t)RSTRING_LEN(bytes) - sent);
        trace_io(loop, descriptor, count, true);
        if (count >= 0) {
            sent += (size_t)count;
        } else if (count == -EAGAIN) {
            await(loop, self, descriptor, POLLOUT, "io_write");
        } else {
            fail(self, (int)-count, "io_write");
        }
    }
}

// ---- bytes that are sent later, see loop/send.h

struct later {
    struct loop_send send; // first
    VALUE self;
    VALUE bytes;
    ssize_t count; // as of io_transmit, or -ECANCELED: the socket has lost its descriptor
};

static void send_now(struct loop_send *send)
{
    struct later *later = (struct later *)send;
    bool open = shim_plain_writer(later->self) == send->descriptor;
    later->count =
        open ? io_transmit(send->descriptor, RSTRING_PTR(later->bytes), (size_t)RSTRING_LEN(later->bytes)) : -ECANCELED;
}

// Only in a task of Async's: there writes let other tasks run, as in Async's own loop on io_uring. Not in a transient
// one: the reader of a shared connection, say, may hold a lock, and tasks that wait for the lock would not continue
// until the reader has handled all that has come.
static bool sends_later(const struct loop *loop, int descriptor)
{
    if (loop->owner == loop->root) return false;
    const struct task *task = task_of_owner(loop->owner);
    return is_external(task) && loop_gains_by_sending_later(loop, descriptor) &&
           !external_is_transient(task->owner.external);
}

static ssize_t send_later(struct loop *loop, VALUE self, int descriptor, VALUE bytes)
{
    struct later later = {.send = {.descriptor = descriptor, .send = send_now},
                          .self = self,
                          .bytes = bytes,
                          .count = RSTRING_LEN(bytes)}; // in a child of fork: the parent sends them
    loop_send_later(loop, &later.send);
    return later.count;
}

/*
 * call-seq: socket.write(*objects) -> Integer
 *
 * IO#write.
 */
static VALUE write_bytes(int argc, VALUE *argv, VALUE self)
{
    struct loop *loop;
    int descriptor;
    if (argc != 1 || !RB_TYPE_P(argv[0], T_STRING) || RSTRING_LEN(argv[0]) == 0 ||
        !(loop = loop_in_place_of(id_write)) || (descriptor = shim_plain_writer(self)) < 0) {
        if ((loop = loop_in_charge())) loop_send_waiting(loop, shim_open_descriptor(self));
        return rb_call_super(argc, argv);
    }
    loop_enter(loop);
    loop_check_pending(loop, descriptor);
    loop_send_waiting(loop, descriptor);
    VALUE bytes = argv[0];
    long length = RSTRING_LEN(bytes);
    ssize_t count;
    if (sends_later(loop, descriptor)) {
        bytes = rb_str_new_frozen(bytes); // another fiber may change the String meanwhile
        count = send_later(loop, self, descriptor, bytes);
        if (count == -ECANCELED) return rb_call_super(1, &bytes);
    } else {
        loop->statistics.system_calls++;
        count = io_transmit(descriptor, RSTRING_PTR(bytes), (size_t)length);
        trace_io(loop, descriptor, count, true);
    }
    if (count != length) {
        if (count < 0 && count != -EAGAIN) fail(self, (int)-count, "io_write");
        send_rest(loop, self, bytes, count < 0 ? 0 : (size_t)count);
    }
    RB_GC_GUARD(bytes);
    loop_yield_if_spent(loop, (size_t)length);
    return LONG2FIX(length);
}

// Defines the method, unless the program has defined one of its own.
static void define(VALUE socket_class, const char *name, VALUE (*method)(int, VALUE *, VALUE))
{
    VALUE arguments[2] = {ID2SYM(rb_intern(name)), Qfalse}; // ignores inherited methods
    if (!RTEST(rb_funcallv(socket_class, rb_intern("method_defined?"), 2, arguments)))
        rb_define_method(socket_class, name, method, -1);
}

// __read_nonblock exists on Linux only, and shares only its name with IO's.
static void replace_read_nonblock(VALUE socket_class)
{
    VALUE arguments[2] = {ID2SYM(id_read_nonblock), Qfalse};
    if (!RTEST(rb_funcallv(socket_class, rb_intern("private_method_defined?"), 2, arguments))) return;
    rb_alias(socket_class, id_original_read_nonblock, id_read_nonblock);
    rb_define_private_method(socket_class, "__read_nonblock", read_nonblock, 3);
}

void socket_methods_define(void)
{
    static bool defined;
    if (defined) return;
    defined = true;
    id_new = rb_intern("new");
    id_readpartial = rb_intern("readpartial");
    id_write = rb_intern("write");
    id_read_nonblock = rb_intern("__read_nonblock");
    id_original_read_nonblock = rb_intern("__read_nonblock_without_heddle");
    sym_wait_readable = ID2SYM(rb_intern("wait_readable"));
    VALUE socket_class = rb_path2class("BasicSocket");
    rb_ext_ractor_safe(true); // every Ractor has sockets; loops belong to the main Ractor
    // Defined on BasicSocket itself, which has none of its own: a method that a program prepends or redefines comes
    // first.
    define(socket_class, "readpartial", readpartial);
    define(socket_class, "write", write_bytes);
    replace_read_nonblock(socket_class);
    rb_ext_ractor_safe(false);
}
