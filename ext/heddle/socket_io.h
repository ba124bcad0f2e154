// Reading and writing without ever blocking and without giving up the GVL: beside a thread that computes, each time it is
// let go costs a quantum of 100 ms.
#ifndef HEDDLE_SOCKET_IO_H
#define HEDDLE_SOCKET_IO_H

#include "heddle.h"

#include <sys/types.h>

// Bytes moved (0 from io_receive: end of file), or -errno; -EAGAIN when it would have to wait. Regular files, for which
// nothing ever has to wait, are read and written at once.
ssize_t io_receive(int descriptor, void *buffer, size_t length);
ssize_t io_transmit(int descriptor, const void *bytes, size_t length);

// The same for what is no socket, as far as the caller knows: saves the system call that finds out.
ssize_t io_read(int descriptor, void *buffer, size_t length);
ssize_t io_write(int descriptor, const void *bytes, size_t length);

// The same with two pieces of memory, the first one first. What is no socket gets the first only.
ssize_t io_receive_two(int descriptor, void *first, size_t first_length, void *second, size_t second_length);
ssize_t io_transmit_two(int descriptor, const void *first, size_t first_length, const void *second,
                        size_t second_length);

#endif
