// Reads and writes that never block and never release the GVL: beside a CPU-bound thread, each release of the GVL can
// cost a quantum of 100 ms.
#ifndef HEDDLE_OS_SOCKET_IO_H
#define HEDDLE_OS_SOCKET_IO_H

#include "heddle.h"

#include <sys/types.h>

// Return the bytes moved (0 from io_receive: end of file), or -errno; -EAGAIN when the call would have to wait. Regular
// files never make anybody wait: they are read and written at once.
ssize_t io_receive(int descriptor, void *buffer, size_t length);
ssize_t io_transmit(int descriptor, const void *bytes, size_t length);

// For a descriptor that the caller believes is not a socket: saves the system call that finds out.
ssize_t io_read(int descriptor, void *buffer, size_t length);
ssize_t io_write(int descriptor, const void *bytes, size_t length);

// Like io_receive and io_transmit, with two pieces of memory in order. A descriptor that is not a socket uses only the
// first piece.
ssize_t io_receive_two(int descriptor, void *first, size_t first_length, void *second, size_t second_length);
ssize_t io_transmit_two(int descriptor, const void *first, size_t first_length, const void *second,
                        size_t second_length);

#endif
