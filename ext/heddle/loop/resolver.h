// Names to addresses, on a few native threads that call getaddrinfo: nsswitch.conf, /etc/hosts and search domains are
// honoured, no Ruby thread is made, and no loop waits.
#ifndef HEDDLE_LOOP_RESOLVER_H
#define HEDDLE_LOOP_RESOLVER_H

#include "loop/loop.h"

// The numeric addresses of `host`, in the order of RFC 6724 as getaddrinfo gives them; nil when there are none.
// Raises SocketError for a resolver that failed, as Ruby's own look-up does.
VALUE resolver_addresses(struct loop *loop, VALUE host);

#endif
