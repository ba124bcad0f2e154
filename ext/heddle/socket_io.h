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

#endif
