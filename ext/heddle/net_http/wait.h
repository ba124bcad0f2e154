// Waits for a socket: in a scheduler's fiber through the scheduler, in a thread without the GVL.
#ifndef HEDDLE_NET_HTTP_WAIT_H
#define HEDDLE_NET_HTTP_WAIT_H

#include "os/deadline.h"

#include <stddef.h>

// Waits until `descriptor`, that of the IO `socket`, is ready for one of `events`. Returns false when the span is over.
// Raises IOError if the socket is closed meanwhile, Heddle::DeadlineExceeded, and interrupts.
bool net_http_wait(VALUE socket, int descriptor, short events, int64_t span);

// Returns whether the running fiber has a scheduler.
bool net_http_scheduled(void);

// In a fiber of a loop, returns the loop's memory for bytes that are copied at once; NULL elsewhere, and for a larger
// size.
char *net_http_scratch(size_t size);

#endif
