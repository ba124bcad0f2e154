// Heddle::Compat::Connect::TCPClass and SocketClass: TCPSocket.new, TCPSocket.open and Socket.tcp with a race of our
// own.
#ifndef HEDDLE_NAMES_CONNECT_H
#define HEDDLE_NAMES_CONNECT_H

#include <stdbool.h>

// Whether the next call of one of these methods in this fiber is for ours also in a plain thread without a deadline,
// where the look-up has no bound before Ruby 3.3, and under another's scheduler, which it stops from Ruby 3.4 on.
void connect_claim_next(bool claimed);

#endif
