#include "net_http/upload.h"

#include "os/budget.h"
#include "net_http/without_gvl.h"
#include "net_http/wait.h"
#include "portable.h"
#include "shims.h"
#include "os/socket_io.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <ruby/io.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    AT_FIRST = 16384, // IO.copy_stream's read size
    PIECE = 262144,
    RECORD = 16384 - 16,    // with a chunk's framing, one TLS record
    SLICE = 1 << 20,        // sent by a fiber before other fibers may run
    WITHOUT_GVL = 16 << 20, // sent by a thread before it checks for interrupts
    SLOW = 5000000          // nanoseconds
};

// ---- the source

static bool responds(VALUE object, const char *name)
{
    return rb_obj_respond_to(object, rb_intern(name), 0);
}

static bool is_regular_file(VALUE io)
{
    rb_io_t *file = RFILE(io)->fptr;
    rb_io_check_byte_readable(file);
    struct stat status;
    return !rb_io_read_pending(file) && fstat(rb_io_descriptor(io), &status) == 0 && S_ISREG(status.st_mode);
}

// A StringIO whose bytes can be sent in place: of exactly that class, and with Ruby's own methods in C.
static bool is_string_io(VALUE stream)
{
    if (CLASS_OF(stream) != rb_obj_class(stream) || strcmp(rb_obj_classname(stream), "StringIO") != 0) return false;
    VALUE method = rb_obj_method(stream, ID2SYM(rb_intern("readpartial")));
    return NIL_P(rb_funcall(method, rb_intern("source_location"), 0)) &&
           !RTEST(rb_funcall(stream, rb_intern("closed_read?"), 0)) &&
           RB_TYPE_P(rb_funcall(stream, rb_intern("string"), 0), T_STRING);
}

// Like IO.copy_stream: an object with `to_path` is an IO or the path of a file; any other object is asked for bytes.
bool net_http_source_of(VALUE stream, struct net_http_source *source)
{
    *source = (struct net_http_source){.object = stream};
    if (RB_TYPE_P(stream, T_STRING)) return false;
    if (RB_TYPE_P(stream, T_FILE) || responds(stream, "to_path")) {
        source->object = rb_io_check_io(stream);
        source->file = true;
        return !NIL_P(source->object) && is_regular_file(source->object);
    }
    source->partial = responds(stream, "readpartial");
    source->string = source->partial && is_string_io(stream);
    return source->partial || responds(stream, "read");
}

// ---- sending

struct upload {
    struct net_http_io *io;
    const struct net_http_source *source;
    bool chunked;
    int file; // a duplicate: the source's own descriptor may be closed while the GVL is released
    VALUE piece;
    size_t wanted;
};

static VALUE piece_of(struct upload *upload, size_t room)
{
    if (NIL_P(upload->piece)) upload->piece = rb_str_buf_new((long)room);
    return upload->piece;
}

static void send_piece(struct upload *upload)
{
    size_t length = (size_t)RSTRING_LEN(upload->piece);
    if (length == 0) return; // a chunk of no bytes would be the last
    net_http_io_use_budget(upload->io, length);
    if (!upload->chunked) {
        net_http_io_write(upload->io, 1, &upload->piece);
        return;
    }
    char line[24];
    int size = snprintf(line, sizeof line, "%zx\r\n", length);
    VALUE parts[3] = {rb_str_new(line, size), upload->piece, rb_str_new_lit("\r\n")};
    net_http_io_write(upload->io, 3, parts);
    RB_GC_GUARD(parts[0]);
    RB_GC_GUARD(parts[2]);
}

// Raises if another thread has closed the source's file.
static void check_open(const struct upload *upload)
{
    rb_io_descriptor(upload->source->object);
}

static void send_file_in_pieces(struct upload *upload)
{
    size_t room = upload->io->tls ? RECORD : PIECE;
    for (;;) {
        VALUE piece = piece_of(upload, room);
        rb_str_modify(piece);
        ssize_t count = io_receive(upload->file, RSTRING_PTR(piece), room);
        if (count < 0) rb_syserr_fail(-(int)count, NULL);
        if (count == 0) return;
        rb_str_set_len(piece, count);
        send_piece(upload);
        check_open(upload);
    }
}

// In a fiber, with the GVL held.
static int send_file_here(struct upload *upload)
{
    struct net_http_io *io = upload->io;
    for (;;) {
        ssize_t count = portable_send_file(io->descriptor, upload->file, SLICE);
        if (count == 0) return 0;
        if (count > 0) {
            net_http_io_use_budget(io, (size_t)count);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            net_http_io_wait_to_write(io, POLLOUT);
        } else if (errno != EINTR) {
            return -errno;
        }
        check_open(upload);
    }
}

static int send_file_outside(struct upload *upload)
{
    struct net_http_io *io = upload->io;
    struct net_http_without_gvl transfer;
    do {
        transfer = (struct net_http_without_gvl){.socket = io->io,
                                                 .descriptor = io->descriptor,
                                                 .file = upload->file,
                                                 .length = WITHOUT_GVL,
                                                 .span = net_http_io_write_span(io)};
        net_http_without_gvl_send_file(&transfer);
        budget_spend(transfer.moved);
        io->descriptor = rb_io_descriptor(io->io);
        check_open(upload);
    } while (transfer.result == 1);
    if (transfer.result == -ETIMEDOUT) net_http_io_write_timed_out(io);
    return transfer.result;
}

// sendfile(2) has no MSG_DONTWAIT.
static bool blocks(int descriptor)
{
    int flags = fcntl(descriptor, F_GETFL);
    return flags < 0 || !(flags & O_NONBLOCK);
}

static void send_file(struct upload *upload)
{
    struct net_http_io *io = upload->io;
    if (io->tls || upload->chunked || blocks(io->descriptor)) return send_file_in_pieces(upload);
    int result = net_http_scheduled() ? send_file_here(upload) : send_file_outside(upload);
    if (result == -EINVAL || result == -ENOSYS || result == -EPERM)
        return send_file_in_pieces(upload); // a file without pages, a system or a container without sendfile
    if (result < 0) rb_syserr_fail(-result, NULL);
}

static VALUE send_duplicate(VALUE argument)
{
    send_file((struct upload *)argument);
    return Qnil;
}

static VALUE close_duplicate(VALUE argument)
{
    close(((struct upload *)argument)->file);
    return Qnil;
}

static VALUE upload_ask(VALUE argument)
{
    struct upload *upload = (struct upload *)argument;
    VALUE arguments[2] = {SIZET2NUM(upload->wanted), piece_of(upload, PIECE)};
    const struct net_http_source *source = upload->source;
    return rb_funcallv(source->object, rb_intern(source->partial ? "readpartial" : "read"), 2, arguments);
}

static VALUE upload_ended(VALUE argument, VALUE error)
{
    (void)argument, (void)error;
    return Qundef;
}

// Like IO.copy_stream: `read` ends a body by nil or an empty String, `readpartial` by EOFError alone.
static bool at_end(const struct upload *upload, VALUE got)
{
    if (got == Qundef) return true;
    return !upload->source->partial && (NIL_P(got) || RSTRING_LEN(upload->piece) == 0);
}

// A source that returns only full reads may be slow: then reads as small as stock's are sent.
static void send_what_is_read(struct upload *upload)
{
    size_t most = upload->io->tls ? RECORD : PIECE;
    upload->wanted = upload->io->tls ? RECORD : AT_FIRST;
    for (;;) {
        deadline_t began = deadline_now();
        VALUE got = rb_rescue2(upload_ask, (VALUE)upload, upload_ended, Qnil, rb_eEOFError, (VALUE)0);
        if (at_end(upload, got)) return;
        if (RSTRING_LEN(upload->piece) == 0) continue; // as a chunk, it would end the body
        bool slow = !upload->source->partial && deadline_now() - began > SLOW;
        upload->wanted = slow ? AT_FIRST : upload->wanted * 2 < most ? upload->wanted * 2 : most;
        send_piece(upload);
    }
}

static void send_rest_of_string(struct upload *upload)
{
    VALUE stream = upload->source->object, string = rb_funcall(stream, rb_intern("string"), 0);
    long length = RSTRING_LEN(string), at = NUM2LONG(rb_funcall(stream, rb_intern("pos"), 0));
    if (at >= length) return;
    rb_funcall(stream, rb_intern("pos="), 1, LONG2NUM(length));
    VALUE rest = at ? rb_str_subseq(string, at, length - at) : string;
    net_http_io_write(upload->io, 1, &rest);
    RB_GC_GUARD(rest);
}

void net_http_upload(struct net_http_io *io, const struct net_http_source *source, bool chunked)
{
    struct upload upload = {.io = io, .source = source, .chunked = chunked, .piece = Qnil};
    net_http_io_recheck(io);
    if (source->file) {
        upload.file = fcntl(rb_io_descriptor(source->object), F_DUPFD_CLOEXEC, 3);
        if (upload.file < 0) rb_sys_fail("fcntl");
        rb_ensure(send_duplicate, (VALUE)&upload, close_duplicate, (VALUE)&upload);
    } else if (source->string && !chunked) {
        send_rest_of_string(&upload);
    } else {
        send_what_is_read(&upload);
    }
    if (chunked) {
        VALUE last = rb_str_new_lit("0\r\n\r\n");
        net_http_io_write(io, 1, &last);
        RB_GC_GUARD(last);
    }
    RB_GC_GUARD(upload.piece);
}
