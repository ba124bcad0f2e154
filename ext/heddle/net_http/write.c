// Sends Strings: several in one system call, TLS records one by one, large Strings without the GVL.
#include "os/budget.h"
#include "net_http/io.h"
#include "net_http/without_gvl.h"
#include "net_http/tls.h"
#include "net_http/wait.h"
#include "portable.h"
#include "shims.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum { WITHOUT_GVL = 65536 }; // a longer rest is sent without the GVL

static size_t write_tls(struct net_http_io *io, VALUE string)
{
    size_t sent = 0, length = (size_t)RSTRING_LEN(string);
    VALUE rest = string;
    while (sent < length) {
        VALUE got = net_http_tls_send(io, rest);
        short awaited = net_http_tls_awaited(got);
        if (awaited) {
            net_http_io_wait_to_write(io, awaited);
        } else {
            sent += NUM2SIZET(got);
            budget_spend(NUM2SIZET(got));
            if (sent < length) rest = rb_str_subseq(string, (long)sent, (long)(length - sent));
        }
    }
    return sent;
}

enum { VECTORS = 8 };

// Fills in the rest of the strings after the first `sent` bytes. Returns the number of vectors used.
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

// Sends the last `left` bytes of a large String. Other code may change the String meanwhile, and several threads may
// send it at once: so this sends a frozen String that shares its bytes.
static void send_without_gvl(struct net_http_io *io, VALUE string, size_t left)
{
    VALUE frozen = rb_str_new_frozen(string);
    struct net_http_without_gvl transfer = {.socket = io->io,
                                            .descriptor = io->descriptor,
                                            .bytes = (uint8_t *)RSTRING_END(frozen) - left,
                                            .length = left,
                                            .span = net_http_io_write_span(io)};
    net_http_without_gvl_send(&transfer);
    if (transfer.result == -ETIMEDOUT) net_http_io_write_timed_out(io);
    if (transfer.result < 0) net_http_raise_errno(-transfer.result);
    io->descriptor = rb_io_descriptor(io->io);
    RB_GC_GUARD(frozen);
}

size_t net_http_io_write(struct net_http_io *io, int count, const VALUE *strings)
{
    size_t sent = 0, all = 0;
    for (int i = 0; i < count; i++)
        all += (size_t)RSTRING_LEN(strings[i]);
    if (io->tls) {
        if (count > 1 && all <= HTTP_RECORD) { // one record instead of several
            VALUE joined = rb_str_buf_new((long)all);
            for (int i = 0; i < count; i++)
                rb_str_cat(joined, RSTRING_PTR(strings[i]), RSTRING_LEN(strings[i]));
            return write_tls(io, joined);
        }
        for (int i = 0; i < count; i++)
            sent += write_tls(io, strings[i]);
        return sent;
    }
    net_http_io_recheck(io); // the strings came from Ruby code, which may have closed the socket
    while (sent < all) {
        struct iovec vectors[VECTORS];
        struct msghdr message = {.msg_iov = vectors};
        message.msg_iovlen = (size_t)vectors_of(vectors, count, strings, sent);
        if (message.msg_iovlen == 0) break; // other code shortened a String during a wait
        ssize_t moved = sendmsg(io->descriptor, &message, MSG_DONTWAIT | PORTABLE_NOSIGNAL);
        if (moved >= 0) {
            sent += (size_t)moved;
            if (sent < all) net_http_io_use_budget(io, (size_t)moved);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            size_t left = all - sent;
            if (left >= WITHOUT_GVL && left <= (size_t)RSTRING_LEN(strings[count - 1]) && !net_http_scheduled()) {
                send_without_gvl(io, strings[count - 1], left);
                return all;
            }
            net_http_io_wait_to_write(io, POLLOUT);
        } else if (errno != EINTR) {
            net_http_raise_errno(errno);
        }
    }
    return sent;
}
