// Heddle::Resolver::Connect::TCPClass and SocketClass: TCPSocket.new, TCPSocket.open and Socket.tcp with our own race.
#ifndef HEDDLE_RESOLVER_CONNECT_H
#define HEDDLE_RESOLVER_CONNECT_H

#include <stdbool.h>

// Claims the next call of one of these methods in this fiber for Heddle. Needed in a plain thread without a deadline,
// where the look-up is unbounded before Ruby 3.3, and under another scheduler, which the look-up stops from Ruby 3.4
// on.
void connect_claim_next(bool claimed);

#endif
