// Large transfers of a thread that no scheduler watches over: without the GVL, which is taken again once at their end. Beside a
// thread that computes, each time costs up to 100 ms: there what is here, or comes at once, is had first, for 10 ms at most.
#ifndef HEDDLE_NET_HTTP_NET_HTTP_NOGVL_H
#define HEDDLE_NET_HTTP_NET_HTTP_NOGVL_H

#include "heddle.h"

#include <sys/types.h>

struct net_http_nogvl {
    VALUE socket;
    int descriptor; // of the socket
    int64_t span;   // how long to wait at most each time, in nanoseconds
    uint8_t *bytes; // received into, or sent from; they must stay where they are
    int file;       // sent from, at the place where it is
    size_t length;
    size_t moved;
    int64_t until; // when the wait that is under way ends, 0: none is; a signal does not make it longer
    int result;    // 1: all of it; 0: the end of the file, or of what comes; -ETIMEDOUT, or another -errno
    short events;
    ssize_t (*move)(struct net_http_nogvl *transfer, size_t done);
};

// Each fills in `moved` and `result`. Interrupts may raise, Heddle::DeadlineExceeded may be raised, and `moved` is right then, too.
void net_http_nogvl_receive(struct net_http_nogvl *transfer);
void net_http_nogvl_send(struct net_http_nogvl *transfer);
void net_http_nogvl_send_file(struct net_http_nogvl *transfer);

#endif
