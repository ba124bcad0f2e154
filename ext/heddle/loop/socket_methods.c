#include "loop/socket_methods.h"

#include "loop/scheduler.h"
#include "shims.h"
#include "socket_io.h"

#include <errno.h>
#include <poll.h>

// BasicSocket#readpartial and #write, which sockets inherit from IO, for tasks of ours. Ruby calls the hooks io_read and
// io_write for them, and each time makes an IO::Buffer first: as much work as the system call. Here the bytes go straight
// between the String and the kernel; whatever is out of the ordinary (an encoding, a timeout, bytes that were read ahead, an
// IO that is closed) is left to Ruby, and to the hooks.

enum { SHORT_READ = 16384 }; // bytes that are read into the loop's own memory first: their number is not known before

static ID id_new, id_readpartial, id_write;

// Who is in charge of the calling fiber; NULL for a blocking fiber, another scheduler, or a subclass of ours, whose hooks may
// be its own. And where a program has put a method of its own in place or in front of IO's, which is then to be called.
static struct loop *loop_in_charge(ID method)
{
    VALUE scheduler = rb_fiber_scheduler_current();
    if (NIL_P(scheduler) || !rb_method_basic_definition_p(rb_cIO, method)) return NULL;
    return scheduler_plain_loop(scheduler);
}

// As Ruby's own methods say it: with the path of a UNIXSocket, and their name.
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
    if (ready == -ECANCELED) loop_raise_wait_error(ECANCELED, function);
    if (ready < 0) fail(self, -ready, function);
}

static VALUE receive(struct loop *loop, int descriptor, long most, ssize_t *count)
{
    loop->statistics.system_calls++;
    VALUE bytes = 0;
    if (most <= SHORT_READ) {
        if (!loop->scratch) loop->scratch = ALLOC_N(char, SHORT_READ);
        *count = io_receive(descriptor, loop->scratch, (size_t)most);
        if (*count > 0) bytes = rb_str_new(loop->scratch, *count);
    } else {
        bytes = rb_str_new(NULL, most);
        *count = io_receive(descriptor, RSTRING_PTR(bytes), (size_t)most);
        rb_str_resize(bytes, *count > 0 ? *count : 0);
    }
    loop_note_drained(loop, descriptor, *count > 0 && *count < most);
    return bytes;
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
    if (argc != 1 || !FIXNUM_P(argv[0]) || FIX2LONG(argv[0]) <= 0 || !(loop = loop_in_charge(id_readpartial)) ||
        !shim_reads(self) || (descriptor = shim_plain_reader(self)) < 0)
        return rb_call_super(argc, argv);
    loop_enter(loop);
    task_raise_pending(loop->task);
    bool wait_first = loop_drained(loop, descriptor);
    for (;;) {
        if (!wait_first) {
            ssize_t count;
            VALUE bytes = receive(loop, descriptor, FIX2LONG(argv[0]), &count);
            if (count > 0) {
                loop_courtesy(loop);
                return bytes;
            }
            if (count == 0) rb_eof_error();
            if (count != -EAGAIN) fail(self, (int)-count, "io_getpartial");
        }
        wait_first = false;
        await(loop, self, descriptor, POLLIN, "io_getpartial");
        // Another fiber may have used the IO meanwhile. That it closed it for reading (close_read) the kernel tells: the end.
        if ((descriptor = shim_plain_reader(self)) < 0) return rb_call_super(argc, argv);
    }
}

// Sends what is left. The String may be changed by others while we wait: this keeps the bytes that it had.
static void send_rest(struct loop *loop, VALUE self, VALUE bytes, size_t sent)
{
    bytes = rb_str_new_frozen(bytes);
    while (sent < (size_t)RSTRING_LEN(bytes)) {
        int descriptor = rb_io_descriptor(self); // raises if it was closed while we waited
        loop->statistics.system_calls++;
        ssize_t count = io_transmit(descriptor, RSTRING_PTR(bytes) + sent, (size_t)RSTRING_LEN(bytes) - sent);
        if (count >= 0) {
            sent += (size_t)count;
        } else if (count == -EAGAIN) {
            await(loop, self, descriptor, POLLOUT, "io_write");
        } else {
            fail(self, (int)-count, "io_write");
        }
    }
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
    if (argc != 1 || !RB_TYPE_P(argv[0], T_STRING) || RSTRING_LEN(argv[0]) == 0 || !(loop = loop_in_charge(id_write)) ||
        (descriptor = shim_plain_writer(self)) < 0)
        return rb_call_super(argc, argv);
    loop_enter(loop);
    task_raise_pending(loop->task);
    VALUE bytes = argv[0];
    long length = RSTRING_LEN(bytes);
    loop->statistics.system_calls++;
    ssize_t count = io_transmit(descriptor, RSTRING_PTR(bytes), (size_t)length);
    if (count != length) {
        if (count < 0 && count != -EAGAIN) fail(self, (int)-count, "io_write");
        send_rest(loop, self, bytes, count < 0 ? 0 : (size_t)count);
    }
    RB_GC_GUARD(bytes);
    loop_courtesy(loop);
    return LONG2FIX(length);
}

// Unless the program has put one of its own there.
static void define(VALUE socket_class, const char *name, VALUE (*method)(int, VALUE *, VALUE))
{
    VALUE arguments[2] = {ID2SYM(rb_intern(name)), Qfalse}; // not what it inherits
    if (!RTEST(rb_funcallv(socket_class, rb_intern("method_defined?"), 2, arguments)))
        rb_define_method(socket_class, name, method, -1);
}

void socket_methods_define(void)
{
    static bool defined;
    if (defined) return;
    defined = true;
    id_new = rb_intern("new");
    id_readpartial = rb_intern("readpartial");
    id_write = rb_intern("write");
    VALUE socket_class = rb_path2class("BasicSocket");
    rb_ext_ractor_safe(true); // every Ractor has sockets; loops are the main one's
    // On the class itself, which has none of its own: a method that somebody defines or puts in front stands before it.
    define(socket_class, "readpartial", readpartial);
    define(socket_class, "write", write_bytes);
    rb_ext_ractor_safe(false);
}
