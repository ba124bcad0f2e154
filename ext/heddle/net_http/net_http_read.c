// Reads a body to where it goes: into the tail of a String, or in segments to whatever takes them with <<.
#include "budget.h"
#include "gvl.h"
#include "net_http/net_http_garbage.h"
#include "net_http/net_http_io.h"
#include "net_http/net_http_nogvl.h"
#include "net_http/net_http_sink.h"
#include "net_http/net_http_tls.h"
#include "net_http/net_http_wait.h"
#include "shims.h"
#include "socket_io.h"
#include "wire/wire_http.h"

#include <errno.h>
#include <poll.h>
#include <ruby/encoding.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

enum {
    NOGVL = 65536,           // what is owed beyond that is received without the GVL
    FIRST_RESERVE = 4 << 20, // what a length on the wire may reserve beyond what has arrived, to begin with
    LENT = 262144 // the size of a segment that stays in the processor's cache when it is used again and again
};

enum { FIRST_INFLATED = 4096, LEAST_INFLATED = 512 };
static const int64_t LONG = 4000000; // nanoseconds

// A String that bytes are received into. As in stock a byte above 127 makes it binary, whatever it was before.
struct target {
    struct net_http_io *io;
    VALUE string;
    uint64_t left;
    size_t reserve; // how much may be reserved next
    bool alone;     // nothing was in the String before
    bool binary;    // was before: nobody asks what its bytes are
    bool high;
    bool ended;
    VALUE scratch; // for records of TLS
    struct net_http_nogvl transfer;
};

// The bytes were put behind the end already.
static void arrived(struct target *target, size_t count)
{
    if (!target->binary && !target->high && wire_http_any_high((const uint8_t *)RSTRING_END(target->string), count))
        target->high = true;
    net_http_add_length(target->string, count);
    target->left -= count;
}

static void append(struct target *target, const void *bytes, size_t count)
{
    net_http_make_room(target->string, count);
    memcpy(RSTRING_END(target->string), bytes, count);
    arrived(target, count);
}

// Room for as much of what is left as may be reserved now. No more than that where nothing else will come to the String: what was
// reserved counts as garbage later.
static size_t reserve(struct target *target, size_t least)
{
    if (target->left == UINT64_MAX) {
        net_http_given(least);
        net_http_make_room(target->string, least);
        return least;
    }
    size_t wanted = target->left < target->reserve ? (size_t)target->left : target->reserve;
    net_http_given(wanted);
    if (target->reserve < HTTP_LARGEST_RESERVE) target->reserve *= 2;
    if (target->alone && rb_str_capacity(target->string) - (size_t)RSTRING_LEN(target->string) < wanted) {
        rb_str_modify_expand(target->string, (long)wanted);
    } else {
        net_http_make_room(target->string, wanted);
    }
    return wanted;
}

static size_t room_for(struct target *target)
{
    size_t least = target->left == UINT64_MAX ? NOGVL : 1; // of unknown length: as much again
    size_t length = (size_t)RSTRING_LEN(target->string);
    if (target->left == UINT64_MAX && length > least)
        least = length < HTTP_LARGEST_RESERVE ? length : HTTP_LARGEST_RESERVE;
    size_t room = rb_str_capacity(target->string) - length;
    if (room >= least && room >= 4096) return room < target->left ? room : (size_t)target->left;
    return reserve(target, least);
}

// For what has come already.
static void make_room_for(struct target *target, size_t count)
{
    if (rb_str_capacity(target->string) - (size_t)RSTRING_LEN(target->string) < count) reserve(target, count);
}

void net_http_trim(VALUE string)
{
    size_t length = (size_t)RSTRING_LEN(string);
    if (rb_str_capacity(string) - length > length / 4 + 4096) rb_str_resize(string, (long)length);
}

static VALUE run_nogvl(VALUE argument)
{
    net_http_nogvl_receive((struct net_http_nogvl *)argument);
    return Qnil;
}

static VALUE end_nogvl(VALUE argument)
{
    struct target *target = (struct target *)argument;
    rb_str_unlocktmp(target->string);
    arrived(target, target->transfer.moved);
    return Qnil;
}

// Without the GVL until the room is full.
static void receive_nogvl(struct target *target, size_t room)
{
    struct net_http_io *io = target->io;
    target->transfer = (struct net_http_nogvl){.socket = io->io,
                                               .descriptor = io->descriptor,
                                               .bytes = (uint8_t *)RSTRING_END(target->string),
                                               .length = room,
                                               .span = net_http_io_read_span(io)};
    rb_str_locktmp(target->string);
    rb_ensure(run_nogvl, (VALUE)&target->transfer, end_nogvl, (VALUE)target);
    budget_spend(target->transfer.moved);
    int result = target->transfer.result;
    if (result == 0) {
        target->ended = true;
    } else if (result == -ETIMEDOUT) {
        net_http_io_read_timed_out(io);
    } else if (result < 0) {
        net_http_raise_errno(-result);
    }
    io->descriptor = rb_io_descriptor(io->io);
}

static void receive_tls(struct target *target)
{
    size_t most = target->left < HTTP_RECORD ? (size_t)target->left : HTTP_RECORD;
    VALUE got = net_http_tls_receive(target->io, most, target->scratch);
    if (NIL_P(got)) {
        target->ended = true;
    } else if (RB_TYPE_P(got, T_STRING)) {
        make_room_for(target, (size_t)RSTRING_LEN(got));
        append(target, RSTRING_PTR(got), (size_t)RSTRING_LEN(got));
        budget_spend((size_t)RSTRING_LEN(got));
    } else {
        net_http_io_wait_to_read(target->io, net_http_tls_awaited(got));
    }
}

static void receive_plain(struct target *target)
{
    size_t room = room_for(target);
    if (room >= NOGVL && !net_http_scheduled()) return receive_nogvl(target, room);
    rb_str_modify(target->string);
    ssize_t count = io_receive(target->io->descriptor, RSTRING_END(target->string), room);
    if (count > 0) {
        arrived(target, (size_t)count);
        net_http_io_use_budget(target->io, (size_t)count);
    } else if (count == 0) {
        target->ended = true;
    } else if (count == -EAGAIN) {
        net_http_io_wait_to_read(target->io, POLLIN);
    } else {
        net_http_raise_errno((int)-count);
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
    if (target->left) net_http_trim(string); // ended before its time, or of unknown length
    return Qnil;
}

static bool read_into_string(struct net_http_io *io, uint64_t length, VALUE string)
{
    struct target target = {.io = io, .string = string, .left = length, .reserve = FIRST_RESERVE, .scratch = Qnil};
    target.alone = RSTRING_LEN(string) == 0;
    target.binary = rb_enc_get(string) == rb_ascii8bit_encoding();
    rb_str_modify(string);
    struct net_http_pending pending = net_http_io_pending(io);
    size_t taken = pending.length < length ? pending.length : (size_t)length;
    if (taken) {
        net_http_make_room(string, length > FIRST_RESERVE ? taken : (size_t)length);
        pending = net_http_io_pending(io); // `string` might be @rbuf
        append(&target, pending.at, taken);
        net_http_io_consume(io, taken);
    }
    if (target.left == 0) {
        finish_target((VALUE)&target);
        return true;
    }
    if (io->tls) target.scratch = rb_str_buf_new(HTTP_RECORD);
    // Since the socket was last used other tasks may have had a turn, and closed it: its number may be another file's.
    net_http_io_look_again(io);
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

// An empty binary String with room for so much: the one that was lent last, or a new one.
static VALUE empty_segment(struct net_http_io *io, size_t room)
{
    if (io->segments != HTTP_LENT || NIL_P(io->spare)) return binary(room);
    VALUE segment = io->spare;
    io->spare = Qnil;
    rb_str_modify(segment);
    rb_str_set_len(segment, 0);
    net_http_make_room(segment, room);
    return segment;
}

// How much to receive at once: into a String that is given away what has arrived, for its memory is new. 0: nothing has, or the
// file has ended.
static size_t room_for_segment(const struct net_http_io *io, size_t most)
{
    if (io->segments == HTTP_LENT) return most < LENT || gvl_contended() ? most : LENT; // each write lets go of the GVL
    int there = 0;
    if (ioctl(io->descriptor, FIONREAD, &there) < 0) there = HTTP_RECORD;
    return there <= 0 ? 0 : (size_t)there < most ? (size_t)there : most;
}

// What has arrived, waiting for the first of it; nil at the end of the file.
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
            uint8_t byte; // FIONREAD does not tell the end of the file, nor an error
            ssize_t count = recv(io->descriptor, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
            if (count == 0) return Qnil;
            if (count > 0) continue;
            if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) net_http_raise_errno(errno);
        }
        net_http_io_wait_to_read(io, POLLIN);
    }
}

// One record: reading on might raise, and lose what was read before. SSLSocket decrypts into the spare String, which is handed on as it
// is; what is small, and given away, gets a String of its size.
static VALUE segment_from_tls(struct net_http_io *io, size_t most)
{
    for (;;) {
        VALUE buffer = io->spare;
        if (NIL_P(buffer)) buffer = binary(HTTP_RECORD);
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

// What is lent is a String that only points to the bytes: IO#write shares those of the one that it is given with a copy, and the next
// segment would need memory of its own after all. It points nowhere as soon as the destination is done with it, however that ends.
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
        net_http_given((size_t)RSTRING_LEN(segment));
        rb_funcallv(destination, rb_intern("<<"), 1, &segment); // whose from here on the segment is
    }
    io->calling = false;
}

// A thousand bytes may be inflated from one, before anybody else has a turn: where a piece takes long, the next is smaller. Returns its
// size.
static size_t hand_on_timed(struct net_http_io *io, VALUE segment, VALUE destination, size_t size)
{
    deadline_t began = deadline_now();
    hand_on(io, segment, destination);
    int64_t took = deadline_now() - began;
    if (took > LONG) return size > LEAST_INFLATED ? size / 2 : size;
    return took < LONG / 4 && size < HTTP_RECORD ? size * 2 : size;
}

static bool read_in_segments(struct net_http_io *io, uint64_t length, VALUE destination)
{
    if (io->segments == HTTP_UNJUDGED) io->segments = net_http_takes_at_once(destination) ? HTTP_LENT : HTTP_GIVEN;
    size_t largest = io->inflated ? FIRST_INFLATED : io->library->segment;
    while (length) {
        size_t most = length < largest ? (size_t)length : largest;
        VALUE segment;
        if (net_http_io_pending(io).length) {
            segment = segment_from_rbuf(io, most);
        } else {
            net_http_io_look_again(io);
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

bool net_http_io_read(struct net_http_io *io, uint64_t length, VALUE destination)
{
    if (!SPECIAL_CONST_P(destination) && CLASS_OF(destination) == rb_cString && !OBJ_FROZEN(destination) &&
        rb_enc_asciicompat(rb_enc_get(destination)) &&
        (rb_enc_get(destination) == rb_ascii8bit_encoding() ||
         rb_enc_str_coderange(destination) == ENC_CODERANGE_7BIT)) {
        return read_into_string(io, length, destination);
    }
    if (length == 0) { // as stock says it to a block
        VALUE nothing = binary(0);
        rb_funcallv(destination, rb_intern("<<"), 1, &nothing);
    }
    return read_in_segments(io, length, destination);
}
