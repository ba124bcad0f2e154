// From the number of a descriptor to the Ruby object that owns it. At each instant at which an exception can arrive the
// number has one owner: with two, each would close it, and the second close hits whatever file has the number by then.
#ifndef HEDDLE_OS_SOCKET_OBJECT_H
#define HEDDLE_OS_SOCKET_OBJECT_H

#include "heddle.h"

// Makes a socket of this class, as klass.for_fd would, but without a call of Ruby code: an interrupt, which Ruby looks
// for when a method returns, could strike once the object is there and before its caller knows of it. `*descriptor`
// becomes -1 at the moment at which the object owns the number. Where this raises, the number is still the caller's.
VALUE socket_take(VALUE klass, int *descriptor);

// Closes a socket that nobody else has. What strikes meanwhile is raised once it is closed.
void socket_discard(VALUE socket);

#endif
