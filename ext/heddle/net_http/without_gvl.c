#include "net_http/without_gvl.h"

#include "os/gvl.h"
#include "net_http/string.h"
#include "portable.h"
#include "scope/deadline_scope.h"
#include "shims.h"

#include <errno.h>
#include <sys/socket.h>

static const int64_t HOLD = 10000000; // nanoseconds that a transfer may keep the GVL: a tenth of a quantum
static const int64_t LONGEST_WITHOUT_CHECK = 100000000; // … that it may run before deadlines and interrupts are checked

struct region {
    struct net_http_without_gvl *transfer;
    deadline_t until; // the deadline in force
    deadline_t over;
    deadline_t hold_until; // with the GVL held: when to release it; 0 without the GVL
    deadline_t pause_at;   // without the GVL: when to stop for checks, if the peer never lets us wait; 0 with the GVL
    int result;
};

static int wait_for_more(const struct region *region)
{
    struct net_http_without_gvl *transfer = region->transfer;
    if (region->hold_until) {
        struct pollfd more = {.fd = transfer->descriptor, .events = transfer->events};
        return gvl_spin(&more, 1) > 0 ? 0 : -EAGAIN;
    }
    deadline_t now = deadline_now();
    if (transfer->until == 0) transfer->until = deadline_after(now, transfer->span);
    if (now >= region->until) return -ETIMEDOUT;
    deadline_t until = region->until < transfer->until ? region->until : transfer->until;
    int64_t span = until == DEADLINE_NEVER ? DEADLINE_NEVER : until > now ? until - now : 0;
    struct pollfd asked = {.fd = transfer->descriptor, .events = transfer->events};
    int found = gvl_poll(&asked, 1, span);
    return found == 0 ? -ETIMEDOUT : found < 0 ? found : 0;
}

static VALUE move_some(void *argument)
{
    struct region *region = argument;
    struct net_http_without_gvl *transfer = region->transfer;
    region->result = 0;
    while (transfer->moved < transfer->length) {
        ssize_t count = transfer->move(transfer, transfer->moved);
        if (count > 0) {
            transfer->moved += (size_t)count;
            transfer->until = 0;
            deadline_t now = deadline_now();
            if (region->hold_until && now > region->hold_until) {
                region->result = -EAGAIN;
                break;
            }
            if (region->pause_at && now > region->pause_at && transfer->moved < transfer->length) {
                region->result = -EINTR;
                break;
            }
            continue;
        }
        if (count == 0) break;
        if (errno == EINTR) continue;
        region->result = -errno;
        if (errno != EAGAIN && errno != EWOULDBLOCK) break;
        region->result = wait_for_more(region);
        if (region->result < 0) break;
    }
    if (transfer->moved == transfer->length) region->result = 1;
    region->over = deadline_now();
    return Qnil;
}

// `holds`: the GVL may be held for this transfer. Not for a file, because a disk could make that last.
static void without_gvl_run(struct net_http_without_gvl *transfer, bool holds)
{
    deadline_t in_force = deadline_in_force();
    // Beside a CPU-bound thread, first moves what is there or comes at once: that thread would not return the GVL
    // sooner.
    if (holds && gvl_contended()) {
        struct region held = {
            .transfer = transfer, .until = in_force, .hold_until = deadline_after(deadline_now(), HOLD)};
        move_some(&held);
        transfer->result = held.result;
        if (held.result != -EAGAIN) return;
    }
    for (;;) {
        struct region region = {
            .transfer = transfer, .until = in_force, .pause_at = deadline_after(deadline_now(), LONGEST_WITHOUT_CHECK)};
        gvl_without(transfer->socket, transfer->descriptor, move_some, &region, &region.over);
        transfer->result = region.result;
        if (region.result != 1 && in_force != DEADLINE_NEVER && deadline_now() >= in_force) deadline_check();
        if (region.result != -EINTR) return;
        rb_io_descriptor(transfer->socket); // raises if the socket is closed
    }
}

static ssize_t without_gvl_receive(struct net_http_without_gvl *transfer, size_t done)
{
    size_t most = transfer->length - done, ahead = NET_HTTP_POPULATED - done % NET_HTTP_POPULATED;
    if (transfer->length >= NET_HTTP_POPULATED) {
        if (most > ahead) most = ahead;
        if (ahead == NET_HTTP_POPULATED) net_http_string_populate(transfer->bytes + done, most);
    }
    return recv(transfer->descriptor, transfer->bytes + done, most, MSG_DONTWAIT);
}

void net_http_without_gvl_receive(struct net_http_without_gvl *transfer)
{
    transfer->events = POLLIN;
    transfer->move = without_gvl_receive;
    without_gvl_run(transfer, true);
}

static ssize_t transmit(struct net_http_without_gvl *transfer, size_t done)
{
    return send(transfer->descriptor, transfer->bytes + done, transfer->length - done,
                MSG_DONTWAIT | PORTABLE_NOSIGNAL);
}

void net_http_without_gvl_send(struct net_http_without_gvl *transfer)
{
    transfer->events = POLLOUT;
    transfer->move = transmit;
    without_gvl_run(transfer, true);
}

static ssize_t transmit_file(struct net_http_without_gvl *transfer, size_t done)
{
    return portable_send_file(transfer->descriptor, transfer->file, transfer->length - done);
}

void net_http_without_gvl_send_file(struct net_http_without_gvl *transfer)
{
    transfer->events = POLLOUT;
    transfer->move = transmit_file;
    without_gvl_run(transfer, false);
}
