// Waiting for a socket: in a scheduler's fiber through the scheduler, in a thread without the GVL.
#ifndef HEDDLE_NET_HTTP_NET_HTTP_WAIT_H
#define HEDDLE_NET_HTTP_NET_HTTP_WAIT_H

#include "deadline.h"

#include <stddef.h>

// Until `descriptor`, that of the IO `socket`, is ready for one of `events`. False when the span is over. Raises
// IOError when it is closed meanwhile, Heddle::DeadlineExceeded, and what interrupts raise.
bool net_http_wait(VALUE socket, int descriptor, short events, int64_t span);

// Whether the running fiber has a scheduler.
bool net_http_scheduled(void);

// In a fiber of a loop, the loop's memory for bytes that are to be copied at once; NULL elsewhere, and for more than it has.
char *net_http_scratch(size_t size);

#endif
