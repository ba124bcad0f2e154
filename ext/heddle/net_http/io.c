#include "net_http/io.h"

#include "os/budget.h"
#include "net_http/string.h"
#include "net_http/tls.h"
#include "net_http/wait.h"
#include "portable.h"
#include "shims.h"
#include "os/poll_at_once.h"
#include "os/socket_io.h"

#include <errno.h>
#include <ruby/encoding.h>
#include <sys/socket.h>

static VALUE tcp_socket, unix_socket, socket_class;

// ---- opening

static bool fall_back(struct net_http_library *library, enum net_http_fallback reason)
{
    library->fallbacks[reason]++;
    return false;
}

// OpenSSL is loaded only when it is first needed.
static bool is_ssl_socket(struct net_http_library *library, VALUE klass)
{
    if (klass == library->ssl_socket) return true;
    if (library->ssl_socket || strcmp(rb_class2name(klass), "OpenSSL::SSL::SSLSocket") != 0) return false;
    rb_gc_register_mark_object(library->ssl_error = rb_path2class("OpenSSL::SSL::SSLError"));
    rb_gc_register_mark_object(library->ssl_socket = rb_path2class("OpenSSL::SSL::SSLSocket"));
    return klass == library->ssl_socket;
}

bool net_http_io_open(struct net_http_io *io, VALUE self)
{
    VALUE klass = CLASS_OF(self);
    struct net_http_library *library = net_http_library_of_buffered(klass);
    if (!library) { // a subclass or a singleton class
        while (!NIL_P(klass) && !(library = net_http_library_of_buffered(klass)))
            klass = rb_class_superclass(klass);
        return library ? fall_back(library, HTTP_FALLBACK_OVERRIDE) : false;
    }
    if (!library->enabled) return fall_back(library, HTTP_FALLBACK_DISABLED);
    if (!(library->unpatched & HTTP_UNPATCHED_IO)) return fall_back(library, HTTP_FALLBACK_OVERRIDE);
    if (RTEST(rb_attr_get(self, iv_debug_output))) return fall_back(library, HTTP_FALLBACK_DEBUG_OUTPUT);
    io->calling = false;
    io->inflated = false;
    io->records = 0;
    io->bypasses = false;
    io->spare = Qnil;
    io->segments = HTTP_UNDECIDED;
    io->self = self;
    io->library = library;
    io->io = rb_attr_get(self, iv_io);
    if (SPECIAL_CONST_P(io->io)) return fall_back(library, HTTP_FALLBACK_IO);
    klass = CLASS_OF(io->io);
    io->tls = false;
    if (klass == tcp_socket || klass == socket_class || klass == unix_socket) {
        io->descriptor = shim_open_descriptor(io->io);
        if (io->descriptor < 0) return fall_back(library, HTTP_FALLBACK_IO); // the rest of @rbuf can still be read
        rb_io_t *file = RFILE(io->io)->fptr;
        if (rb_io_read_pending(file)) return fall_back(library, HTTP_FALLBACK_BUFFERED);
    } else if (is_ssl_socket(library, klass)) {
        io->tls = true;
        io->descriptor = -1;
    } else {
        return fall_back(library, HTTP_FALLBACK_IO);
    }
    VALUE rbuf = rb_attr_get(self, iv_rbuf);
    if (!RB_TYPE_P(rbuf, T_STRING) || rb_enc_get(rbuf) != rb_ascii8bit_encoding()) {
        return fall_back(library, HTTP_FALLBACK_OVERRIDE);
    }
    VALUE offset = rb_attr_get(self, iv_rbuf_offset);
    io->rbuf = rbuf;
    io->offsets = FIXNUM_P(offset);
    library->fast++;
    return true;
}

void net_http_io_recheck(struct net_http_io *io)
{
    if (!io->tls) io->descriptor = rb_io_descriptor(io->io);
}

// The socket for error messages: without TLS around it.
static VALUE socket_of(const struct net_http_io *io)
{
    return io->tls ? rb_funcallv(io->io, id_to_io, 0, NULL) : io->io;
}

// Other code may have replaced @rbuf during a wait.
static VALUE rbuf_of(const struct net_http_io *io)
{
    VALUE rbuf = rb_attr_get(io->self, iv_rbuf);
    Check_Type(rbuf, T_STRING);
    return rbuf;
}

static size_t offset_of(const struct net_http_io *io)
{
    return io->offsets ? NUM2SIZET(rb_attr_get(io->self, iv_rbuf_offset)) : 0;
}

struct net_http_pending net_http_io_pending(struct net_http_io *io)
{
    VALUE rbuf = io->rbuf = rbuf_of(io);
    size_t offset = offset_of(io), length = (size_t)RSTRING_LEN(rbuf);
    if (offset > length) offset = length;
    return (struct net_http_pending){(const uint8_t *)RSTRING_PTR(rbuf) + offset, length - offset};
}

static void set_offset(const struct net_http_io *io, size_t offset, bool empty)
{
    if (!io->offsets) return;
    rb_ivar_set(io->self, iv_rbuf_offset, SIZET2NUM(offset));
    rb_ivar_set(io->self, iv_rbuf_empty, empty ? Qtrue : Qfalse);
}

static void drop_by_moving(VALUE rbuf, size_t length)
{
    size_t rest = (size_t)RSTRING_LEN(rbuf) - length;
    rb_str_modify(rbuf);
    memmove(RSTRING_PTR(rbuf), RSTRING_PTR(rbuf) + length, rest);
    rb_str_set_len(rbuf, (long)rest);
}

// Called before bytes are appended to @rbuf: with a server whose pieces always end in the middle of a line, @rbuf would
// grow with everything ever read. Returns the offset.
static size_t drop_consumed(const struct net_http_io *io)
{
    VALUE rbuf = rbuf_of(io);
    size_t offset = offset_of(io), length = (size_t)RSTRING_LEN(rbuf);
    if (offset > length) offset = length; // other code may leave it too large
    if (offset == 0 || length - offset > offset) return offset;
    drop_by_moving(rbuf, offset);
    set_offset(io, 0, length == offset);
    return 0;
}

void net_http_io_consume(const struct net_http_io *io, size_t length)
{
    if (length == 0) return;
    VALUE rbuf = rbuf_of(io);
    size_t offset = offset_of(io) + length, all = (size_t)RSTRING_LEN(rbuf);
    HEDDLE_ASSERT(offset <= all);
    if (offset == all) {
        rb_str_modify(rbuf); // keeps its memory for the next reply
        rb_str_set_len(rbuf, 0);
        set_offset(io, 0, true);
    } else if (io->offsets) {
        set_offset(io, offset, false);
    } else {
        drop_by_moving(rbuf, offset);
    }
}

// ---- waiting

bool net_http_io_wait(struct net_http_io *io, short events, VALUE timeout)
{
    VALUE socket = socket_of(io);
    int descriptor = rb_io_descriptor(socket);
    bool ready = net_http_wait(socket, descriptor, events, deadline_span(timeout));
    net_http_io_recheck(io);
    return ready;
}

RBIMPL_ATTR_NORETURN()
static void timed_out(const struct net_http_io *io, VALUE error)
{
    VALUE socket = socket_of(io);
    rb_exc_raise(rb_class_new_instance(1, &socket, error));
}

void net_http_io_wait_to_read(struct net_http_io *io, short events)
{
    if (!net_http_io_wait(io, events, rb_attr_get(io->self, iv_read_timeout))) net_http_io_read_timed_out(io);
}

void net_http_io_wait_to_write(struct net_http_io *io, short events)
{
    if (!net_http_io_wait(io, events, rb_attr_get(io->self, iv_write_timeout))) net_http_io_write_timed_out(io);
}

int64_t net_http_io_read_span(const struct net_http_io *io)
{
    return deadline_span(rb_attr_get(io->self, iv_read_timeout));
}

int64_t net_http_io_write_span(const struct net_http_io *io)
{
    return deadline_span(rb_attr_get(io->self, iv_write_timeout));
}

void net_http_io_read_timed_out(const struct net_http_io *io)
{
    timed_out(io, io->library->read_timeout);
}

void net_http_io_write_timed_out(const struct net_http_io *io)
{
    timed_out(io, io->library->write_timeout);
}

void net_http_io_use_budget(struct net_http_io *io, size_t bytes)
{
    budget_spend(bytes);
    net_http_io_recheck(io);
}

void net_http_raise_errno(int error)
{
    rb_syserr_fail_str(error, Qnil);
}

void net_http_raise_eof(void)
{
    rb_raise(rb_eEOFError, "end of file reached");
}

void net_http_raise_long_line(const struct net_http_io *io, size_t limit)
{
    if (io->library->limits_heads) rb_funcall(io->library->response, id_read_line, 2, io->self, SIZET2NUM(limit));
    rb_raise(io->library->bad_response, "response line too long"); // unless read_line has just been replaced
}

// ---- receiving

static bool fill_from_tls(struct net_http_io *io)
{
    for (;;) {
        size_t offset = drop_consumed(io);
        VALUE rbuf = rbuf_of(io);
        bool empty = RSTRING_LEN(rbuf) == 0;
        VALUE got = net_http_tls_receive(io, HTTP_RECORD, empty ? rbuf : Qnil);
        if (NIL_P(got)) return false;
        if (RB_TYPE_P(got, T_STRING)) {
            rbuf = rbuf_of(io);
            if (got != rbuf) rb_str_cat(rbuf, RSTRING_PTR(got), RSTRING_LEN(got));
            set_offset(io, empty ? 0 : offset, false);
            budget_spend(BUDGET_PARSED * (size_t)RSTRING_LEN(got));
            RB_GC_GUARD(got);
            return true;
        }
        net_http_io_wait_to_read(io, net_http_tls_awaited(got));
    }
}

// Appends to @rbuf. Mostly no bytes have come yet, and room made before they come would be held by a waiting fiber: a
// page, and a page fault, for each reply that it waits for.
static ssize_t http_receive(struct net_http_io *io, VALUE rbuf, size_t room)
{
    char *scratch = net_http_string_room(rbuf) < room ? net_http_scratch(room) : NULL;
    net_http_string_make_room(rbuf, scratch ? 0 : room);
    ssize_t count = io_receive(io->descriptor, scratch ? scratch : RSTRING_END(rbuf), room);
    if (count <= 0) return count;
    if (scratch) {
        net_http_string_make_room(rbuf, (size_t)count);
        memcpy(RSTRING_END(rbuf), scratch, (size_t)count);
    }
    net_http_string_add_length(rbuf, (size_t)count);
    return count;
}

bool net_http_io_fill(struct net_http_io *io, size_t room)
{
    if (io->tls) return fill_from_tls(io);
    net_http_io_recheck(io);
    for (;;) {
        size_t offset = drop_consumed(io);
        VALUE rbuf = rbuf_of(io);
        ssize_t count = http_receive(io, rbuf, room);
        if (count > 0) {
            set_offset(io, offset, false);
            net_http_io_use_budget(io, BUDGET_PARSED * (size_t)count);
            return true;
        }
        if (count == 0) return false;
        if (count != -EAGAIN) net_http_raise_errno((int)-count);
        net_http_io_wait_to_read(io, POLLIN);
    }
}

// ---- liveness

bool net_http_io_closed(VALUE self)
{
    VALUE io = rb_attr_get(self, iv_io);
    if (SPECIAL_CONST_P(io)) return true;
    if (!RB_TYPE_P(io, T_FILE)) io = rb_check_funcall(io, id_to_io, 0, NULL);
    return !RB_TYPE_P(io, T_FILE) || shim_open_descriptor(io) < 0;
}

bool net_http_io_quiet(const struct net_http_io *io)
{
    struct pollfd asked = {.fd = rb_io_descriptor(socket_of(io)), .events = POLLIN};
    return poll_at_once(&asked, 1) == 0;
}

int net_http_io_ended(struct net_http_io *io)
{
    if (!io->tls) {
        uint8_t byte;
        ssize_t count = recv(io->descriptor, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
        if (count == 0) return 1;
        if (count < 0) {
            if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return -1;
            net_http_raise_errno(errno);
        }
        // Unexpected bytes may come before the end; no reply comes after the end.
        struct pollfd asked = {.fd = io->descriptor, .events = PORTABLE_POLLRDHUP};
        return poll_at_once(&asked, 1) > 0;
    }
    VALUE rbuf = rbuf_of(io);
    bool empty = RSTRING_LEN(rbuf) == 0;
    VALUE got = net_http_tls_receive(io, 1, Qnil);
    if (NIL_P(got)) return 1;
    if (!RB_TYPE_P(got, T_STRING)) return -1; // a session ticket, or nothing at all
    rbuf = rbuf_of(io);
    rb_str_cat(rbuf, RSTRING_PTR(got), RSTRING_LEN(got));
    set_offset(io, empty ? 0 : offset_of(io), false);
    RB_GC_GUARD(got);
    return 0;
}

void net_http_io_know_sockets(void)
{
    if (tcp_socket) return;
    tcp_socket = rb_path2class("TCPSocket");
    unix_socket = rb_path2class("UNIXSocket");
    socket_class = rb_path2class("Socket");
    rb_gc_register_mark_object(tcp_socket);
    rb_gc_register_mark_object(unix_socket);
    rb_gc_register_mark_object(socket_class);
}
