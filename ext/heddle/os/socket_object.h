// Turns a descriptor into the Ruby object that owns it. Whenever an exception can arrive, the descriptor has exactly
// one owner: two owners would both close it, and the second close could hit another file with the same number.
#ifndef HEDDLE_OS_SOCKET_OBJECT_H
#define HEDDLE_OS_SOCKET_OBJECT_H

#include "heddle.h"

// Makes a socket of this class, like klass.for_fd, but without calling Ruby code: Ruby checks for interrupts when a
// method returns, and one could raise after the object exists and before its caller knows of it. `*descriptor` becomes
// -1 at the moment the object owns the descriptor. If this raises, the caller still owns it.
VALUE socket_take(VALUE klass, int *descriptor);

// Closes a socket that no other code uses. Raises an interrupt that comes meanwhile only after the socket is closed.
void socket_discard(VALUE socket);

#endif
