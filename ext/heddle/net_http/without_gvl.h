// Large transfers of a plain thread without a scheduler: they release the GVL once and regain it at their end. Beside a
// CPU-bound thread regaining costs up to 100 ms, so a transfer first moves what is there or comes at once, with the GVL
// held for 10 ms at most.
#ifndef HEDDLE_NET_HTTP_WITHOUT_GVL_H
#define HEDDLE_NET_HTTP_WITHOUT_GVL_H

#include "heddle.h"

#include <sys/types.h>

struct net_http_without_gvl {
    VALUE socket;
    int descriptor; // of the socket
    int64_t span;   // the longest single wait in nanoseconds
    uint8_t *bytes; // destination or source; must not move
    int file;       // source, read from its current position
    size_t length;
    size_t moved;
    int64_t until; // end of the current wait, 0 without one; a signal does not extend it
    int result;    // 1: complete; 0: the end of the file or stream; -ETIMEDOUT, or another -errno
    short events;
    ssize_t (*move)(struct net_http_without_gvl *transfer, size_t done);
};

// Each sets `moved` and `result`. Interrupts and Heddle::DeadlineExceeded may be raised; `moved` is correct then, too.
void net_http_without_gvl_receive(struct net_http_without_gvl *transfer);
void net_http_without_gvl_send(struct net_http_without_gvl *transfer);
void net_http_without_gvl_send_file(struct net_http_without_gvl *transfer);

#endif
