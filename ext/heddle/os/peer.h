// Names the other end of a socket, for people.
#ifndef HEDDLE_OS_PEER_H
#define HEDDLE_OS_PEER_H

#include <ruby.h>

// "127.0.0.1:80", "[::1]:80" or the path of a UNIX socket. nil for what has no peer with a name: a pipe, a listening or
// unconnected socket, a pair. Makes one system call, which never waits.
VALUE peer_name(int descriptor);

#endif
