// Waiting for a socket: in a scheduler's fiber through the scheduler, in a thread without the GVL.
#ifndef HEDDLE_NET_HTTP_WAIT_H
#define HEDDLE_NET_HTTP_WAIT_H

#include "deadline.h"

// Until `descriptor`, that of the IO `socket`, is ready for one of `events`. False when the span is over. Raises
// IOError when it is closed meanwhile, Heddle::DeadlineExceeded, and what interrupts raise.
bool http_wait(VALUE socket, int descriptor, short events, int64_t span);

// ppoll(2) with the GVL or without: 1 when ready, 0 when the span is over, or -errno.
int http_poll(int descriptor, short events, int64_t span);

// Runs the function without the GVL. The socket is known to Ruby meanwhile: IO#close in another thread ends the wait. The function
// says in `woke` when it was done, which tells how long it took to get the GVL back. Interrupts may raise.
void http_outside(VALUE socket, VALUE (*function)(void *), void *argument, int descriptor, const deadline_t *woke);

// Whether the running fiber has a scheduler.
bool http_scheduled(void);

// To be called after a transfer that did not wait: lets the scheduler's other fibers have a turn once in a while.
void http_courtesy(void);

// Whether waits look for a reply with the GVL, for 200 µs, where getting the GVL back took more than 1 ms last time.
extern bool http_wait_looks;

#endif
