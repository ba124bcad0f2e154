// Reads a body to its destination: to the end of a String here, to any other object in body_writer.c.
#include "os/budget.h"
#include "net_http/io.h"
#include "net_http/without_gvl.h"
#include "net_http/body_writer.h"
#include "net_http/string.h"
#include "net_http/tls.h"
#include "net_http/wait.h"
#include "shims.h"
#include "os/socket_io.h"
#include "wire/http/head.h"

#include <errno.h>
#include <poll.h>
#include <ruby/encoding.h>

enum { WITHOUT_GVL = 65536 }; // as much room or more is filled without the GVL

// A String to receive into. As in stock, a byte above 127 makes it binary, whatever its encoding was.
struct target {
    struct net_http_io *io;
    VALUE string;
    struct net_http_growth growth;
    uint64_t left; // UINT64_MAX: everything up to the end of the file
    bool binary;   // was binary before: the bytes need no check
    bool high;
    bool ended;
    VALUE scratch; // for TLS records
    struct net_http_without_gvl transfer;
};

// Counts bytes that are already at the String's end.
static void arrived(struct target *target, size_t count)
{
    if (!target->binary && !target->high && wire_http_any_high((const uint8_t *)RSTRING_END(target->string), count))
        target->high = true;
    net_http_string_add_length(target->string, count);
    target->left -= count;
}

// The String has room for the bytes.
static void net_http_append(struct target *target, const void *bytes, size_t count)
{
    memcpy(RSTRING_END(target->string), bytes, count);
    arrived(target, count);
}

static VALUE run_without_gvl(VALUE argument)
{
    net_http_without_gvl_receive((struct net_http_without_gvl *)argument);
    return Qnil;
}

static VALUE end_without_gvl(VALUE argument)
{
    struct target *target = (struct target *)argument;
    rb_str_unlocktmp(target->string);
    arrived(target, target->transfer.moved);
    return Qnil;
}

// Without the GVL until the room is full.
static void receive_without_gvl(struct target *target, size_t room)
{
    struct net_http_io *io = target->io;
    target->transfer = (struct net_http_without_gvl){.socket = io->io,
                                                     .descriptor = io->descriptor,
                                                     .bytes = (uint8_t *)RSTRING_END(target->string),
                                                     .length = room,
                                                     .span = net_http_io_read_span(io)};
    rb_str_locktmp(target->string);
    rb_ensure(run_without_gvl, (VALUE)&target->transfer, end_without_gvl, (VALUE)target);
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
        net_http_growth_make_room(&target->growth, target->left, (size_t)RSTRING_LEN(got));
        net_http_append(target, RSTRING_PTR(got), (size_t)RSTRING_LEN(got));
        budget_spend((size_t)RSTRING_LEN(got));
    } else {
        net_http_io_wait_to_read(target->io, net_http_tls_awaited(got));
    }
}

static void receive_plain(struct target *target)
{
    size_t room = net_http_growth_room(&target->growth, target->left);
    if (room >= WITHOUT_GVL && !net_http_scheduled()) return receive_without_gvl(target, room);
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

// Runs however the transfer ended: sets the String's encoding, and frees memory that it does not need.
static VALUE finish_target(VALUE argument)
{
    struct target *target = (struct target *)argument;
    VALUE string = target->string;
    if (target->high) rb_enc_associate(string, rb_ascii8bit_encoding());
    ENC_CODERANGE_CLEAR(string);
    if (!target->high && !target->binary) ENC_CODERANGE_SET(string, ENC_CODERANGE_7BIT);
    if (target->left) net_http_string_trim(string); // ended too early, or of unknown length
    return Qnil;
}

static bool read_into_string(struct net_http_io *io, uint64_t length, VALUE string)
{
    struct target target = {.io = io, .string = string, .left = length, .scratch = Qnil};
    target.binary = rb_enc_get(string) == rb_ascii8bit_encoding();
    size_t here = net_http_io_pending(io).length;
    if (here > length) here = (size_t)length;
    target.growth = net_http_growth_begin(string, length, here);
    if (here) {
        net_http_append(&target, net_http_io_pending(io).at, here); // asked again: `string` might be @rbuf
        net_http_io_consume(io, here);
    }
    if (target.left == 0) {
        finish_target((VALUE)&target);
        return true;
    }
    if (io->tls) target.scratch = rb_str_buf_new(HTTP_RECORD);
    // Other tasks may have had a turn since the socket was last used, and closed it: its number may belong to another
    // file.
    net_http_io_recheck(io);
    rb_ensure(receive_into, (VALUE)&target, finish_target, (VALUE)&target);
    RB_GC_GUARD(target.scratch);
    return target.left == 0;
}

// Returns whether receiving into the String does what its << does. With another encoding, the String's bytes above 127
// would have to fit the new ones.
static bool is_plain_string(VALUE destination)
{
    if (SPECIAL_CONST_P(destination) || CLASS_OF(destination) != rb_cString || OBJ_FROZEN(destination)) return false;
    if (!rb_enc_asciicompat(rb_enc_get(destination))) return false;
    return rb_enc_get(destination) == rb_ascii8bit_encoding() ||
           rb_enc_str_coderange(destination) == ENC_CODERANGE_7BIT;
}

bool net_http_io_read(struct net_http_io *io, uint64_t length, VALUE destination)
{
    return is_plain_string(destination) ? read_into_string(io, length, destination)
                                        : net_http_body_writer_read(io, length, destination);
}
