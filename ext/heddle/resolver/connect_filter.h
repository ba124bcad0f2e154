// Heddle.connect_filter: asks the program's filters before an address is connected to. Every connect of Heddle and of
// Ruby's socket classes asks here, immediately before it, with the very address.
#ifndef HEDDLE_RESOLVER_CONNECT_FILTER_H
#define HEDDLE_RESOLVER_CONNECT_FILTER_H

#include "os/deadline.h"
#include "heddle.h"

#include <stdbool.h>
#include <sys/socket.h>

// Returns whether a filter binds the running code.
bool connect_filter_asks(void);

// Returns nil if all filters allow the address within the span, otherwise the Heddle::ConnectRefused to raise. `host`
// is the String that the program gave. Runs the filters: they may wait, raise, and change filters.
VALUE connect_filter_refusal(const struct sockaddr *address, socklen_t length, VALUE host, int64_t span);

// Socket.tcp, as Ruby does it, for each allowed address of the host in turn. Not for the class whose `tcp` is Heddle's
// own: `method` is the name of Ruby's.
VALUE connect_filter_tcp(int argc, const VALUE *argv, VALUE klass, ID method);

#endif
