// Names the other end of a socket, for people.
#ifndef HEDDLE_OS_PEER_H
#define HEDDLE_OS_PEER_H

#include <ruby.h>
#include <stdbool.h>

// Bytes of a name, with the zero at its end; the path of a UNIX socket has up to 108.
#define PEER_NAME 128

// "127.0.0.1:80", "[::1]:80" or the path of a UNIX socket. Returns false, and an empty name, for what has no peer with
// a name: a pipe, a listening or unconnected socket, a pair. Makes one system call, which never waits. Any thread may
// ask.
bool peer_text(int descriptor, char name[PEER_NAME]);

// The same as a String, or nil.
VALUE peer_name(int descriptor);

#endif
