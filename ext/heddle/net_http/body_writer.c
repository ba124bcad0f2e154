#include "net_http/body_writer.h"

#include "os/budget.h"
#include "os/gvl.h"
#include "net_http/string.h"
#include "net_http/tls.h"
#include "os/socket_io.h"

#include <errno.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

enum {
    LENT = 262144, // the size of a reused segment: stays in the processor's cache
    FIRST_INFLATED = 4096,
    LEAST_INFLATED = 512
};
static const int64_t LONG = 4000000; // nanoseconds

// ---- who owns a segment after <<

static VALUE location_of(VALUE object, const char *name)
{
    return rb_funcall(rb_obj_method(object, ID2SYM(rb_intern(name))), rb_intern("source_location"), 0);
}

// IO#<< calls write, which a program may have replaced.
static bool writes_in_c(VALUE object)
{
    return NIL_P(location_of(object, "<<")) && NIL_P(location_of(object, "write"));
}

static bool net_http_ends_with(VALUE string, const char *end)
{
    size_t length = strlen(end);
    return RB_TYPE_P(string, T_STRING) && (size_t)RSTRING_LEN(string) >= length &&
           memcmp(RSTRING_END(string) - length, end, length) == 0;
}

// A Tempfile delegates to a File.
static bool hands_on_to_file(VALUE object)
{
    VALUE location = location_of(object, "<<");
    if (!RB_TYPE_P(location, T_ARRAY) || !net_http_ends_with(rb_ary_entry(location, 0), "/delegate.rb")) return false;
    VALUE file = rb_funcall(object, rb_intern("__getobj__"), 0);
    return RB_TYPE_P(file, T_FILE) && writes_in_c(file);
}

// Returns whether the object's << has taken the bytes when it returns, so that the String can be reused: true for IOs,
// StringIOs and Tempfiles whose methods no program has replaced.
static bool takes_at_once(VALUE destination)
{
    if (SPECIAL_CONST_P(destination)) return false;
    if (RB_TYPE_P(destination, T_FILE)) return writes_in_c(destination);
    const char *name = rb_obj_classname(destination);
    if (strcmp(name, "StringIO") == 0) return writes_in_c(destination);
    return strcmp(name, "Tempfile") == 0 && hands_on_to_file(destination);
}

// ---- receiving a segment

// Returns an empty binary String with this much room: the one that was lent last, or a new one.
static VALUE empty_segment(struct net_http_io *io, size_t room)
{
    if (io->segments != HTTP_LENT || NIL_P(io->spare)) return net_http_string_new(room);
    VALUE segment = io->spare;
    io->spare = Qnil;
    rb_str_modify(segment);
    rb_str_set_len(segment, 0);
    net_http_string_make_room(segment, room);
    return segment;
}

// How much to receive at once: for a String that is given away, as much as has arrived, because its memory is new. 0:
// nothing has arrived, or the file has ended.
static size_t room_for_segment(const struct net_http_io *io, size_t most)
{
    if (io->segments == HTTP_LENT) return most < LENT || gvl_contended() ? most : LENT; // each write releases the GVL
    int there = 0;
    if (ioctl(io->descriptor, FIONREAD, &there) < 0) there = HTTP_RECORD;
    return there <= 0 ? 0 : (size_t)there < most ? (size_t)there : most;
}

// Returns what has arrived, after waiting for the first bytes; nil at the end of the file.
static VALUE segment_from_socket(struct net_http_io *io, size_t most)
{
    for (;;) {
        size_t room = room_for_segment(io, most);
        if (room) {
            VALUE segment = empty_segment(io, room);
            ssize_t count = io_receive(io->descriptor, RSTRING_PTR(segment), room);
            if (count > 0) {
                rb_str_set_len(segment, (long)count);
                return segment;
            }
            if (count == 0) return Qnil;
            if (count != -EAGAIN) net_http_raise_errno((int)-count);
            if (io->segments == HTTP_LENT) io->spare = segment;
        } else {
            uint8_t byte; // FIONREAD reports neither the end of the file nor an error
            ssize_t count = recv(io->descriptor, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
            if (count == 0) return Qnil;
            if (count > 0) continue;
            if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) net_http_raise_errno(errno);
        }
        net_http_io_wait_to_read(io, POLLIN);
    }
}

// Returns one record: reading on might raise, and lose the record. SSLSocket decrypts into the spare String, which is
// passed on directly; a small segment that is given away gets a String of its own size.
static VALUE segment_from_tls(struct net_http_io *io, size_t most)
{
    for (;;) {
        VALUE buffer = io->spare;
        if (NIL_P(buffer)) buffer = net_http_string_new(HTTP_RECORD);
        io->spare = Qnil;
        VALUE got = net_http_tls_receive(io, most < HTTP_RECORD ? most : HTTP_RECORD, buffer);
        if (RB_TYPE_P(got, T_STRING)) {
            if (got == buffer && (io->segments == HTTP_LENT || RSTRING_LEN(got) >= HTTP_RECORD / 2)) return got;
            io->spare = buffer;
            return rb_str_new(RSTRING_PTR(got), RSTRING_LEN(got));
        }
        io->spare = buffer;
        if (NIL_P(got)) return Qnil;
        net_http_io_wait_to_read(io, net_http_tls_awaited(got));
    }
}

static VALUE segment_of(struct net_http_io *io, const void *bytes, size_t length)
{
    VALUE segment = empty_segment(io, length);
    memcpy(RSTRING_PTR(segment), bytes, length);
    rb_str_set_len(segment, (long)length);
    return segment;
}

static VALUE segment_from_rbuf(struct net_http_io *io, size_t most)
{
    size_t length = net_http_io_pending(io).length;
    if (length > most) length = most;
    VALUE segment = empty_segment(io, length);
    memcpy(RSTRING_PTR(segment), net_http_io_pending(io).at, length);
    rb_str_set_len(segment, (long)length);
    net_http_io_consume(io, length);
    return segment;
}

// ---- handing it over

struct handing {
    VALUE destination;
    VALUE segment;
};

static VALUE hand_over(VALUE argument)
{
    struct handing *handing = (struct handing *)argument;
    return rb_funcallv(handing->destination, rb_intern("<<"), 1, &handing->segment);
}

static VALUE take_back(VALUE segment)
{
    return rb_str_replace(segment, rb_str_new(NULL, 0));
}

// Lends the segment through a String that only points to its bytes: IO#write shares the bytes of its argument with a
// copy, so the next segment would need memory of its own after all. When the destination is done, however that ends,
// the String points nowhere.
static void lend(struct net_http_io *io, VALUE segment, VALUE destination)
{
    struct handing handing = {destination, rb_str_new_static(RSTRING_PTR(segment), RSTRING_LEN(segment))};
    rb_ensure(hand_over, (VALUE)&handing, take_back, handing.segment);
    io->spare = segment;
    RB_GC_GUARD(segment);
}

static void hand_on(struct net_http_io *io, VALUE segment, VALUE destination)
{
    io->calling = true;
    if (io->segments == HTTP_LENT) {
        lend(io, segment, destination);
    } else {
        net_http_string_count((size_t)RSTRING_LEN(segment));
        rb_funcallv(destination, rb_intern("<<"), 1, &segment); // which owns the segment from here on
    }
    io->calling = false;
}

// One byte may inflate to a thousand before other code has a turn: if a piece takes long, the next one is smaller.
// Returns the next size.
static size_t hand_on_timed(struct net_http_io *io, VALUE segment, VALUE destination, size_t size)
{
    deadline_t began = deadline_now();
    hand_on(io, segment, destination);
    int64_t took = deadline_now() - began;
    if (took > LONG) return size > LEAST_INFLATED ? size / 2 : size;
    return took < LONG / 4 && size < HTTP_RECORD ? size * 2 : size;
}

// Stock empties its buffer before it inflates the first byte. If inflating fails, stock still skips the end of the
// chunk, and reports the error of that read, if any. So the bytes are consumed here before the first is handed on.
// Returns their number.
static size_t inflate_pending(struct net_http_io *io, uint64_t length, VALUE destination, size_t *largest)
{
    struct net_http_pending pending = net_http_io_pending(io);
    size_t left = pending.length < length ? pending.length : (size_t)length, at = 0;
    VALUE bytes = rb_str_new((const char *)pending.at, (long)left);
    net_http_io_consume(io, left);
    while (left) {
        size_t count = left < *largest ? left : *largest;
        VALUE segment = segment_of(io, RSTRING_PTR(bytes) + at, count);
        budget_spend(BUDGET_INFLATED * count);
        *largest = hand_on_timed(io, segment, destination, *largest);
        at += count;
        left -= count;
    }
    RB_GC_GUARD(bytes);
    return at;
}

bool net_http_body_writer_read(struct net_http_io *io, uint64_t length, VALUE destination)
{
    if (length == 0) { // as stock calls a block
        VALUE nothing = net_http_string_new(0);
        rb_funcallv(destination, rb_intern("<<"), 1, &nothing);
    }
    if (io->segments == HTTP_UNDECIDED) io->segments = takes_at_once(destination) ? HTTP_LENT : HTTP_GIVEN;
    size_t largest = io->inflated ? FIRST_INFLATED : io->library->segment;
    while (length) {
        size_t most = length < largest ? (size_t)length : largest;
        VALUE segment;
        if (io->inflated && net_http_io_pending(io).length) {
            size_t count = inflate_pending(io, length, destination, &largest);
            if (length != UINT64_MAX) length -= count;
            continue;
        }
        if (net_http_io_pending(io).length) {
            segment = segment_from_rbuf(io, most);
        } else {
            net_http_io_recheck(io);
            segment = io->tls ? segment_from_tls(io, most) : segment_from_socket(io, most);
            if (NIL_P(segment)) return false;
        }
        if (length != UINT64_MAX) length -= (uint64_t)RSTRING_LEN(segment);
        budget_spend((io->inflated ? BUDGET_INFLATED : 1) * (size_t)RSTRING_LEN(segment));
        if (io->inflated) {
            largest = hand_on_timed(io, segment, destination, largest);
        } else {
            hand_on(io, segment, destination);
        }
    }
    return true;
}
