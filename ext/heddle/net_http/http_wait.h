// Waiting for a socket: in a scheduler's fiber through the scheduler, in a thread without the GVL.
#ifndef HEDDLE_NET_HTTP_WAIT_H
#define HEDDLE_NET_HTTP_WAIT_H

#include "deadline.h"

// Until `descriptor`, that of the IO `socket`, is ready for one of `events`. False when the span is over. Raises
// IOError when it is closed meanwhile, Heddle::DeadlineExceeded, and what interrupts raise.
bool http_wait(VALUE socket, int descriptor, short events, int64_t span);

// Receives into `buffer` until `length` bytes are there, without the GVL, waiting `span` at most for each piece. For
// threads that no scheduler watches over. The buffer must stay where it is; interrupts may raise.
struct http_bulk {
    VALUE socket;
    int descriptor;
    uint8_t *buffer;
    size_t length;
    int64_t span;
    size_t received;
    int result; // 1: all there; 0: end of the file; -ETIMEDOUT, or another -errno
};
void http_receive_bulk(struct http_bulk *bulk);

// Whether the running fiber has a scheduler.
bool http_scheduled(void);

// To be called after a transfer that did not wait: lets the scheduler's other fibers have a turn once in a while.
void http_courtesy(void);

// Whether waits look for a reply with the GVL, for 200 µs, where getting the GVL back took more than 1 ms last time.
extern bool http_wait_looks;

#endif
