#include "net_http/http_io.h"

#include "net_http/http_bulk.h"
#include "net_http/http_wait.h"
#include "shims.h"
#include "socket_io.h"
#include "wire/http.h"

#include <errno.h>
#include <poll.h>
#include <ruby/encoding.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum {
    ROOM = 16384,              // what stock receives at once, and a record of TLS
    BULK = 65536,              // what is owed beyond that is received without the GVL
    FIRST_RESERVE = 4 << 20,   // what a length on the wire may reserve beyond what has arrived
    LARGEST_RESERVE = 16 << 20 // … in the end
};

static ID iv_io, iv_rbuf, iv_rbuf_offset, iv_rbuf_empty, iv_read_timeout, iv_write_timeout, iv_debug_output;
static ID id_append, id_read_nonblock, id_write_nonblock, id_to_io;
static VALUE sym_wait_readable, sym_wait_writable;
static VALUE without_exceptions; // {exception: false}
static VALUE tcp_socket, unix_socket, socket_class;

// ---- the view

static bool fall_back(struct http_flavour *flavour, enum http_fallback reason)
{
    flavour->fallbacks[reason]++;
    return false;
}

// OpenSSL is loaded when it is first needed.
static bool is_ssl_socket(struct http_flavour *flavour, VALUE klass)
{
    if (klass == flavour->ssl_socket) return true;
    if (flavour->ssl_socket || strcmp(rb_class2name(klass), "OpenSSL::SSL::SSLSocket") != 0) return false;
    flavour->ssl_error = rb_path2class("OpenSSL::SSL::SSLError");
    flavour->ssl_socket = rb_path2class("OpenSSL::SSL::SSLSocket");
    return klass == flavour->ssl_socket;
}

bool http_io_open(struct http_io *io, VALUE self)
{
    VALUE klass = CLASS_OF(self);
    struct http_flavour *flavour = http_flavour_of_shadow(klass);
    if (!flavour) { // a subclass, or a singleton
        while (klass && !(flavour = http_flavour_of_shadow(klass)))
            klass = rb_class_superclass(klass);
        return flavour ? fall_back(flavour, HTTP_FALLBACK_OVERRIDE) : false;
    }
    if (!flavour->enabled) return fall_back(flavour, HTTP_FALLBACK_DISABLED);
    if (!flavour->io_pristine) return fall_back(flavour, HTTP_FALLBACK_OVERRIDE);
    if (RTEST(rb_attr_get(self, iv_debug_output))) return fall_back(flavour, HTTP_FALLBACK_DEBUG_OUTPUT);
    io->calling = false;
    io->self = self;
    io->flavour = flavour;
    io->io = rb_attr_get(self, iv_io);
    if (SPECIAL_CONST_P(io->io)) return fall_back(flavour, HTTP_FALLBACK_IO);
    klass = CLASS_OF(io->io);
    io->tls = false;
    if (klass == tcp_socket || klass == socket_class || klass == unix_socket) {
        io->descriptor = rb_io_descriptor(io->io);
        rb_io_t *file = RFILE(io->io)->fptr;
        if (rb_io_read_pending(file)) return fall_back(flavour, HTTP_FALLBACK_BUFFERED);
    } else if (is_ssl_socket(flavour, klass)) {
        io->tls = true;
        io->descriptor = -1;
    } else {
        return fall_back(flavour, HTTP_FALLBACK_IO);
    }
    VALUE rbuf = rb_attr_get(self, iv_rbuf);
    if (!RB_TYPE_P(rbuf, T_STRING) || rb_enc_get(rbuf) != rb_ascii8bit_encoding()) {
        return fall_back(flavour, HTTP_FALLBACK_OVERRIDE);
    }
    VALUE offset = rb_attr_get(self, iv_rbuf_offset);
    io->offsets = FIXNUM_P(offset);
    flavour->fast++;
    return true;
}

VALUE http_io_socket(const struct http_io *io)
{
    return io->tls ? rb_funcallv(io->io, id_to_io, 0, NULL) : io->io;
}

static VALUE rbuf_of(const struct http_io *io)
{
    return rb_attr_get(io->self, iv_rbuf);
}

static size_t offset_of(const struct http_io *io)
{
    return io->offsets ? NUM2SIZET(rb_attr_get(io->self, iv_rbuf_offset)) : 0;
}

struct http_pending http_io_pending(const struct http_io *io)
{
    VALUE rbuf = rbuf_of(io);
    size_t offset = offset_of(io), length = (size_t)RSTRING_LEN(rbuf);
    if (offset > length) offset = length;
    return (struct http_pending){(const uint8_t *)RSTRING_PTR(rbuf) + offset, length - offset};
}

static void set_offset(const struct http_io *io, size_t offset, bool empty)
{
    if (!io->offsets) return;
    rb_ivar_set(io->self, iv_rbuf_offset, SIZET2NUM(offset));
    rb_ivar_set(io->self, iv_rbuf_empty, empty ? Qtrue : Qfalse);
}

void http_io_consume(const struct http_io *io, size_t length)
{
    if (length == 0) return;
    VALUE rbuf = rbuf_of(io);
    size_t offset = offset_of(io) + length, all = (size_t)RSTRING_LEN(rbuf);
    HEDDLE_ASSERT(offset <= all);
    if (offset == all) {
        rb_str_modify(rbuf); // its memory is kept: the next reply comes into it
        rb_str_set_len(rbuf, 0);
        set_offset(io, 0, true);
    } else if (io->offsets) {
        set_offset(io, offset, false);
    } else {
        rb_str_modify(rbuf);
        memmove(RSTRING_PTR(rbuf), RSTRING_PTR(rbuf) + offset, all - offset);
        rb_str_set_len(rbuf, (long)(all - offset));
    }
}

// ---- waiting

bool http_io_wait(struct http_io *io, short events, VALUE timeout)
{
    VALUE socket = http_io_socket(io);
    int descriptor = rb_io_descriptor(socket);
    bool ready = http_wait(socket, descriptor, events, deadline_span(timeout));
    if (!io->tls) io->descriptor = rb_io_descriptor(socket); // raises when it was closed meanwhile
    return ready;
}

RBIMPL_ATTR_NORETURN()
static void timed_out(const struct http_io *io, VALUE error)
{
    VALUE socket = http_io_socket(io);
    rb_exc_raise(rb_class_new_instance(1, &socket, error));
}

static void wait_to_read(struct http_io *io, short events)
{
    if (!http_io_wait(io, events, rb_attr_get(io->self, iv_read_timeout))) timed_out(io, io->flavour->read_timeout);
}

void http_io_wait_to_write(struct http_io *io, short events)
{
    if (!http_io_wait(io, events, rb_attr_get(io->self, iv_write_timeout))) http_io_write_timed_out(io);
}

int64_t http_io_write_span(const struct http_io *io)
{
    return deadline_span(rb_attr_get(io->self, iv_write_timeout));
}

void http_io_write_timed_out(const struct http_io *io)
{
    timed_out(io, io->flavour->write_timeout);
}

void http_io_courtesy(struct http_io *io)
{
    http_courtesy();
    if (!io->tls) io->descriptor = rb_io_descriptor(io->io); // raises when it was closed meanwhile
}

static void raise_errno(int error)
{
    rb_syserr_fail_str(error, Qnil);
}

// ---- receiving

// With room for `room` bytes behind what is there. Ruby's own way to make a String larger doubles what is there.
static void make_room(VALUE string, size_t room)
{
    size_t length = (size_t)RSTRING_LEN(string);
    if (room > LONG_MAX - length) rb_raise(rb_eArgError, "string sizes too big");
    if (rb_str_capacity(string) - length >= room) {
        rb_str_modify(string);
    } else { // chunks come by the thousand: half as much again each time
        size_t more = length / 2 < LARGEST_RESERVE ? length / 2 : LARGEST_RESERVE;
        rb_str_modify_expand(string, (long)(room > more ? room : more));
    }
}

static void add_length(VALUE string, size_t count)
{
    rb_str_set_len(string, RSTRING_LEN(string) + (long)count);
}

// The next record of TLS, or part of it, as SSLSocket gives it: nil at the end of the file. `buffer`, if it is not nil,
// becomes the String that is returned; SSLSocket empties it in any case.
static VALUE receive_record(struct http_io *io, size_t most, VALUE buffer)
{
    VALUE arguments[3] = {SIZET2NUM(most), buffer, without_exceptions};
    return rb_funcallv_kw(io->io, id_read_nonblock, 3, arguments, RB_PASS_KEYWORDS);
}

static bool fill_from_tls(struct http_io *io)
{
    for (;;) {
        VALUE rbuf = rbuf_of(io);
        bool empty = RSTRING_LEN(rbuf) == 0;
        VALUE got = receive_record(io, ROOM, empty ? rbuf : Qnil);
        if (NIL_P(got)) return false;
        if (RB_TYPE_P(got, T_STRING)) {
            rbuf = rbuf_of(io);
            if (got != rbuf) rb_str_cat(rbuf, RSTRING_PTR(got), RSTRING_LEN(got));
            set_offset(io, empty ? 0 : offset_of(io), false);
            RB_GC_GUARD(got);
            return true;
        }
        wait_to_read(io, got == sym_wait_writable ? POLLOUT : POLLIN);
    }
}

bool http_io_fill(struct http_io *io, size_t room)
{
    if (io->tls) return fill_from_tls(io);
    for (;;) {
        VALUE rbuf = rbuf_of(io);
        size_t offset = offset_of(io);
        if (offset && offset == (size_t)RSTRING_LEN(rbuf)) { // as other code may leave it
            rb_str_modify(rbuf);
            rb_str_set_len(rbuf, offset = 0);
        }
        make_room(rbuf, room);
        ssize_t count = io_receive(io->descriptor, RSTRING_END(rbuf), room);
        if (count > 0) {
            add_length(rbuf, (size_t)count);
            set_offset(io, offset, false);
            return true;
        }
        if (count == 0) return false;
        if (count != -EAGAIN) raise_errno((int)-count);
        wait_to_read(io, POLLIN);
    }
}

// ---- bodies

// A String that bytes are received into. As in stock a byte above 127 makes it binary, whatever it was before.
struct target {
    struct http_io *io;
    VALUE string;
    uint64_t left;
    size_t reserve; // how much may be reserved next
    bool binary;    // was before: nobody asks what its bytes are
    bool high;
    bool ended;
    VALUE scratch; // for records of TLS
    struct http_bulk bulk;
};

// The bytes were put behind the end already.
static void arrived(struct target *target, size_t count)
{
    if (!target->binary && !target->high && http_any_high((const uint8_t *)RSTRING_END(target->string), count))
        target->high = true;
    add_length(target->string, count);
    target->left -= count;
}

static void append(struct target *target, const void *bytes, size_t count)
{
    make_room(target->string, count);
    memcpy(RSTRING_END(target->string), bytes, count);
    arrived(target, count);
}

static size_t room_for(struct target *target)
{
    size_t least = target->left == UINT64_MAX ? BULK : 1; // of unknown length: as much again
    size_t length = (size_t)RSTRING_LEN(target->string);
    if (target->left == UINT64_MAX && length > least) least = length < LARGEST_RESERVE ? length : LARGEST_RESERVE;
    size_t room = rb_str_capacity(target->string) - length;
    if (room >= least && room >= 4096) return room < target->left ? room : (size_t)target->left;
    size_t wanted = target->left == UINT64_MAX       ? least
                    : target->left < target->reserve ? (size_t)target->left
                                                     : target->reserve;
    if (target->left != UINT64_MAX && target->reserve < LARGEST_RESERVE) target->reserve *= 2;
    make_room(target->string, wanted);
    return wanted;
}

void http_trim(VALUE string)
{
    size_t length = (size_t)RSTRING_LEN(string);
    if (rb_str_capacity(string) - length > length / 4 + 4096) rb_str_resize(string, (long)length);
}

static VALUE run_bulk(VALUE argument)
{
    http_bulk_receive((struct http_bulk *)argument);
    return Qnil;
}

static VALUE end_bulk(VALUE argument)
{
    struct target *target = (struct target *)argument;
    rb_str_unlocktmp(target->string);
    arrived(target, target->bulk.moved);
    return Qnil;
}

// Without the GVL until the room is full.
static void receive_bulk(struct target *target, size_t room)
{
    struct http_io *io = target->io;
    target->bulk = (struct http_bulk){.socket = io->io,
                                      .descriptor = io->descriptor,
                                      .bytes = (uint8_t *)RSTRING_END(target->string),
                                      .length = room,
                                      .span = deadline_span(rb_attr_get(io->self, iv_read_timeout))};
    rb_str_locktmp(target->string);
    rb_ensure(run_bulk, (VALUE)&target->bulk, end_bulk, (VALUE)target);
    int result = target->bulk.result;
    if (result == 0) {
        target->ended = true;
    } else if (result == -ETIMEDOUT) {
        timed_out(io, io->flavour->read_timeout);
    } else if (result < 0) {
        raise_errno(-result);
    }
    io->descriptor = rb_io_descriptor(io->io);
}

static void receive_tls(struct target *target)
{
    VALUE got = receive_record(target->io, target->left < ROOM ? (size_t)target->left : ROOM, target->scratch);
    if (NIL_P(got)) {
        target->ended = true;
    } else if (RB_TYPE_P(got, T_STRING)) {
        room_for(target);
        append(target, RSTRING_PTR(got), (size_t)RSTRING_LEN(got));
    } else {
        wait_to_read(target->io, got == sym_wait_writable ? POLLOUT : POLLIN);
    }
}

static void receive_plain(struct target *target)
{
    size_t room = room_for(target);
    if (room >= BULK && !http_scheduled()) return receive_bulk(target, room);
    rb_str_modify(target->string);
    ssize_t count = io_receive(target->io->descriptor, RSTRING_END(target->string), room);
    if (count > 0) {
        arrived(target, (size_t)count);
        http_io_courtesy(target->io);
    } else if (count == 0) {
        target->ended = true;
    } else if (count == -EAGAIN) {
        wait_to_read(target->io, POLLIN);
    } else {
        raise_errno((int)-count);
    }
}

static VALUE receive_into(VALUE argument)
{
    struct target *target = (struct target *)argument;
    while (target->left && !target->ended) {
        if (target->io->tls) {
            receive_tls(target);
        } else {
            receive_plain(target);
        }
    }
    return Qnil;
}

// However it ended: its encoding, and no more memory than it needs.
static VALUE finish_target(VALUE argument)
{
    struct target *target = (struct target *)argument;
    VALUE string = target->string;
    if (target->high) rb_enc_associate(string, rb_ascii8bit_encoding());
    ENC_CODERANGE_CLEAR(string);
    if (!target->high && !target->binary) ENC_CODERANGE_SET(string, ENC_CODERANGE_7BIT);
    if (target->left) http_trim(string); // ended before its time, or of unknown length
    return Qnil;
}

static bool read_into_string(struct http_io *io, uint64_t length, VALUE string)
{
    struct target target = {.io = io, .string = string, .left = length, .reserve = FIRST_RESERVE, .scratch = Qnil};
    target.binary = rb_enc_get(string) == rb_ascii8bit_encoding();
    rb_str_modify(string);
    struct http_pending pending = http_io_pending(io);
    size_t taken = pending.length < length ? pending.length : (size_t)length;
    if (taken) {
        make_room(string, length > FIRST_RESERVE ? taken : (size_t)length);
        pending = http_io_pending(io); // `string` might be @rbuf
        append(&target, pending.at, taken);
        http_io_consume(io, taken);
    }
    if (target.left == 0) {
        finish_target((VALUE)&target);
        return true;
    }
    if (io->tls) target.scratch = rb_str_buf_new(ROOM);
    rb_ensure(receive_into, (VALUE)&target, finish_target, (VALUE)&target);
    RB_GC_GUARD(target.scratch);
    return target.left == 0;
}

static VALUE binary(size_t room)
{
    VALUE string = rb_str_buf_new((long)room);
    rb_enc_associate(string, rb_ascii8bit_encoding());
    return string;
}

// Segments are garbage as soon as a block is done with them, and the GC frees them by tens of MiB at once. glibc would give that
// memory back each time, and each page of it costs a fault when it comes again. From the largest block that was mapped by itself and
// freed, up to 32 MiB, malloc learns how much to keep (see mallopt(3), M_MMAP_THRESHOLD): this one teaches it, once.
static void keep_freed_memory(size_t length)
{
#ifdef __GLIBC__
    enum { ENOUGH = 8 << 20, LARGEST = 31 << 20 };
    static size_t seen;
    if (seen > ENOUGH || (seen += length) <= ENOUGH) return;
    void *volatile block = malloc(LARGEST);
    free(block);
#else
    (void)length;
#endif
}

// What has arrived, waiting for the first of it; nil at the end of the file.
static VALUE segment_from_socket(struct http_io *io, size_t most)
{
    for (;;) {
        int there = 0;
        if (ioctl(io->descriptor, FIONREAD, &there) < 0) there = ROOM;
        size_t room = there > 0 ? (size_t)there : 1;
        if (room > most) room = most;
        if (there > 0) {
            VALUE segment = binary(room);
            ssize_t count = io_receive(io->descriptor, RSTRING_PTR(segment), room);
            if (count > 0) {
                rb_str_set_len(segment, (long)count);
                if (most > ROOM) keep_freed_memory((size_t)count);
                http_io_courtesy(io);
                return segment;
            }
            if (count == 0) return Qnil;
            if (count != -EAGAIN) raise_errno((int)-count);
        } else {
            uint8_t byte; // FIONREAD does not tell the end of the file, nor an error
            ssize_t count = recv(io->descriptor, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
            if (count == 0) return Qnil;
            if (count > 0) continue;
            if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) raise_errno(errno);
        }
        wait_to_read(io, POLLIN);
    }
}

// One record: reading on might raise, and lose what was read before.
static VALUE segment_from_tls(struct http_io *io, size_t most, VALUE scratch)
{
    for (;;) {
        VALUE got = receive_record(io, most < ROOM ? most : ROOM, scratch);
        if (NIL_P(got)) return Qnil;
        if (RB_TYPE_P(got, T_STRING)) return rb_str_new(RSTRING_PTR(got), RSTRING_LEN(got));
        wait_to_read(io, got == sym_wait_writable ? POLLOUT : POLLIN);
    }
}

static bool read_in_segments(struct http_io *io, uint64_t length, VALUE destination)
{
    size_t largest = io->flavour->segment;
    VALUE scratch = io->tls ? rb_str_buf_new(ROOM) : Qnil;
    while (length) {
        struct http_pending pending = http_io_pending(io);
        size_t most = length < largest ? (size_t)length : largest;
        VALUE segment;
        if (pending.length) {
            if (pending.length < most) most = pending.length;
            segment = binary(most);
            pending = http_io_pending(io);
            memcpy(RSTRING_PTR(segment), pending.at, most);
            rb_str_set_len(segment, (long)most);
            http_io_consume(io, most);
        } else {
            segment = io->tls ? segment_from_tls(io, most, scratch) : segment_from_socket(io, most);
            if (NIL_P(segment)) return false;
        }
        if (length != UINT64_MAX) length -= (uint64_t)RSTRING_LEN(segment);
        io->calling = true;
        rb_funcallv(destination, id_append, 1, &segment); // whose from here on the segment is
        io->calling = false;
        if (length && !io->tls) io->descriptor = rb_io_descriptor(io->io);
    }
    RB_GC_GUARD(scratch);
    return true;
}

bool http_io_read(struct http_io *io, uint64_t length, VALUE destination)
{
    if (!SPECIAL_CONST_P(destination) && CLASS_OF(destination) == rb_cString && !OBJ_FROZEN(destination) &&
        rb_enc_asciicompat(rb_enc_get(destination)) &&
        (rb_enc_get(destination) == rb_ascii8bit_encoding() ||
         rb_enc_str_coderange(destination) == ENC_CODERANGE_7BIT)) {
        return read_into_string(io, length, destination);
    }
    if (length == 0) { // as stock says it to a block
        VALUE nothing = binary(0);
        rb_funcallv(destination, id_append, 1, &nothing);
    }
    return read_in_segments(io, length, destination);
}

// ---- writing

static size_t write_tls(struct http_io *io, VALUE string)
{
    size_t sent = 0, length = (size_t)RSTRING_LEN(string);
    VALUE rest = string;
    while (sent < length) {
        VALUE arguments[2] = {rest, without_exceptions};
        VALUE got = rb_funcallv_kw(io->io, id_write_nonblock, 2, arguments, RB_PASS_KEYWORDS);
        if (got == sym_wait_writable || got == sym_wait_readable) {
            http_io_wait_to_write(io, got == sym_wait_writable ? POLLOUT : POLLIN);
        } else {
            sent += NUM2SIZET(got);
            if (sent < length) rest = rb_str_subseq(string, (long)sent, (long)(length - sent));
        }
    }
    return sent;
}

enum { VECTORS = 8 };

// Fills in what is left of the strings beyond the first `sent` bytes; returns how many vectors that took.
static int vectors_of(struct iovec *vectors, int count, const VALUE *strings, size_t sent)
{
    int used = 0;
    for (int i = 0; i < count && used < VECTORS; i++) {
        size_t length = (size_t)RSTRING_LEN(strings[i]);
        if (sent >= length) {
            sent -= length;
            continue;
        }
        vectors[used++] = (struct iovec){RSTRING_PTR(strings[i]) + sent, length - sent};
        sent = 0;
    }
    return used;
}

// The last `left` bytes of a large String. It may be changed by others meanwhile, and be sent by several threads at once: what is sent
// is a frozen one that shares its bytes.
static void send_bulk(struct http_io *io, VALUE string, size_t left)
{
    VALUE frozen = rb_str_new_frozen(string);
    struct http_bulk bulk = {.socket = io->io,
                             .descriptor = io->descriptor,
                             .bytes = (uint8_t *)RSTRING_END(frozen) - left,
                             .length = left,
                             .span = http_io_write_span(io)};
    http_bulk_send(&bulk);
    if (bulk.result == -ETIMEDOUT) http_io_write_timed_out(io);
    if (bulk.result < 0) raise_errno(-bulk.result);
    io->descriptor = rb_io_descriptor(io->io);
    RB_GC_GUARD(frozen);
}

size_t http_io_write(struct http_io *io, int count, const VALUE *strings)
{
    size_t sent = 0, all = 0;
    for (int i = 0; i < count; i++)
        all += (size_t)RSTRING_LEN(strings[i]);
    if (io->tls) {
        if (count > 1 && all <= ROOM) { // one record instead of several
            VALUE joined = binary(all);
            for (int i = 0; i < count; i++)
                rb_str_cat(joined, RSTRING_PTR(strings[i]), RSTRING_LEN(strings[i]));
            return write_tls(io, joined);
        }
        for (int i = 0; i < count; i++)
            sent += write_tls(io, strings[i]);
        return sent;
    }
    while (sent < all) {
        struct iovec vectors[VECTORS];
        struct msghdr message = {.msg_iov = vectors};
        message.msg_iovlen = (size_t)vectors_of(vectors, count, strings, sent);
        if (message.msg_iovlen == 0) break; // somebody made a String shorter while we waited
        ssize_t moved = sendmsg(io->descriptor, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (moved >= 0) {
            sent += (size_t)moved;
            if (sent < all) http_io_courtesy(io);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            size_t left = all - sent;
            if (left >= BULK && left <= (size_t)RSTRING_LEN(strings[count - 1]) && !http_scheduled()) {
                send_bulk(io, strings[count - 1], left);
                return all;
            }
            http_io_wait_to_write(io, POLLOUT);
        } else if (errno != EINTR) {
            raise_errno(errno);
        }
    }
    return sent;
}

// ---- liveness

bool http_io_closed(VALUE self)
{
    VALUE io = rb_attr_get(self, iv_io);
    if (SPECIAL_CONST_P(io)) return true;
    if (!RB_TYPE_P(io, T_FILE)) io = rb_check_funcall(io, id_to_io, 0, NULL);
    return !RB_TYPE_P(io, T_FILE) || shim_open_descriptor(io) < 0;
}

bool http_io_quiet(const struct http_io *io)
{
    struct pollfd asked = {.fd = rb_io_descriptor(http_io_socket(io)), .events = POLLIN};
    return poll(&asked, 1, 0) == 0;
}

int http_io_ended(struct http_io *io)
{
    if (!io->tls) {
        uint8_t byte;
        ssize_t count = recv(io->descriptor, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
        if (count == 0) return 1;
        if (count < 0) {
            if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return -1;
            raise_errno(errno);
        }
        // Bytes that nobody asked for may lie before the end; no answer comes behind it.
        struct pollfd asked = {.fd = io->descriptor, .events = POLLRDHUP};
        return poll(&asked, 1, 0) > 0;
    }
    VALUE rbuf = rbuf_of(io);
    bool empty = RSTRING_LEN(rbuf) == 0;
    VALUE got = receive_record(io, 1, Qnil);
    if (NIL_P(got)) return 1;
    if (!RB_TYPE_P(got, T_STRING)) return -1; // a session ticket, or nothing at all
    rbuf = rbuf_of(io);
    rb_str_cat(rbuf, RSTRING_PTR(got), RSTRING_LEN(got));
    set_offset(io, empty ? 0 : offset_of(io), false);
    RB_GC_GUARD(got);
    return 0;
}

void Init_heddle_http_io(void)
{
    iv_io = rb_intern("@io");
    iv_rbuf = rb_intern("@rbuf");
    iv_rbuf_offset = rb_intern("@rbuf_offset");
    iv_rbuf_empty = rb_intern("@rbuf_empty");
    iv_read_timeout = rb_intern("@read_timeout");
    iv_write_timeout = rb_intern("@write_timeout");
    iv_debug_output = rb_intern("@debug_output");
    id_append = rb_intern("<<");
    id_read_nonblock = rb_intern("read_nonblock");
    id_write_nonblock = rb_intern("write_nonblock");
    id_to_io = rb_intern("to_io");
    sym_wait_readable = ID2SYM(rb_intern("wait_readable"));
    sym_wait_writable = ID2SYM(rb_intern("wait_writable"));
    without_exceptions = rb_hash_new();
    rb_hash_aset(without_exceptions, ID2SYM(rb_intern("exception")), Qfalse);
    rb_gc_register_mark_object(without_exceptions);
}

void http_io_know_sockets(void)
{
    if (tcp_socket) return;
    tcp_socket = rb_path2class("TCPSocket");
    unix_socket = rb_path2class("UNIXSocket");
    socket_class = rb_path2class("Socket");
    rb_gc_register_mark_object(tcp_socket);
    rb_gc_register_mark_object(unix_socket);
    rb_gc_register_mark_object(socket_class);
}
