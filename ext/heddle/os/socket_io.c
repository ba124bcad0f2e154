#include "os/socket_io.h"

#include "os/poll_at_once.h"
#include "portable.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

// For a descriptor that is not a socket and not O_NONBLOCK (inherited pipes, terminals, files): how many bytes can be
// moved without blocking, or -EAGAIN. A pipe that poll reports as writable has room for at least PIPE_BUF bytes.
static ssize_t room(int descriptor, short events, size_t length)
{
    int flags = fcntl(descriptor, F_GETFL);
    if (flags < 0) return -errno;
    if (flags & O_NONBLOCK) return (ssize_t)length;
    struct stat status;
    if (fstat(descriptor, &status) < 0) return -errno;
    if (S_ISREG(status.st_mode) || S_ISBLK(status.st_mode)) return (ssize_t)length;
    struct pollfd now = {.fd = descriptor, .events = events};
    if (poll_at_once(&now, 1) <= 0) return -EAGAIN;
    return events == POLLOUT && length > PIPE_BUF ? PIPE_BUF : (ssize_t)length;
}

ssize_t io_read(int descriptor, void *buffer, size_t length)
{
    ssize_t allowed = room(descriptor, POLLIN, length), count;
    if (allowed < 0) return allowed;
    do {
        count = read(descriptor, buffer, (size_t)allowed);
    } while (count < 0 && errno == EINTR);
    return count < 0 ? -errno : count;
}

ssize_t io_write(int descriptor, const void *bytes, size_t length)
{
    ssize_t allowed = room(descriptor, POLLOUT, length), count;
    if (allowed < 0) return allowed;
    do {
        count = write(descriptor, bytes, (size_t)allowed);
    } while (count < 0 && errno == EINTR);
    return count < 0 ? -errno : count;
}

ssize_t io_receive(int descriptor, void *buffer, size_t length)
{
    ssize_t count;
    do {
        count = recv(descriptor, buffer, length, MSG_DONTWAIT);
    } while (count < 0 && errno == EINTR);
    if (count >= 0) return count;
    if (errno == ENOTSOCK) return io_read(descriptor, buffer, length);
    return errno == EWOULDBLOCK ? -EAGAIN : -errno;
}

ssize_t io_transmit(int descriptor, const void *bytes, size_t length)
{
    ssize_t count;
    do {
        count = send(descriptor, bytes, length, MSG_DONTWAIT | PORTABLE_NOSIGNAL);
    } while (count < 0 && errno == EINTR);
    if (count >= 0) return count;
    if (errno == ENOTSOCK) return io_write(descriptor, bytes, length);
    return errno == EWOULDBLOCK ? -EAGAIN : -errno;
}

ssize_t io_receive_two(int descriptor, void *first, size_t first_length, void *second, size_t second_length)
{
    struct iovec pieces[2] = {{first, first_length}, {second, second_length}};
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = second_length ? 2 : 1};
    ssize_t count;
    do {
        count = recvmsg(descriptor, &message, MSG_DONTWAIT);
    } while (count < 0 && errno == EINTR);
    if (count >= 0) return count;
    if (errno == ENOTSOCK) return io_receive(descriptor, first, first_length);
    return errno == EWOULDBLOCK ? -EAGAIN : -errno;
}

ssize_t io_transmit_two(int descriptor, const void *first, size_t first_length, const void *second,
                        size_t second_length)
{
    // sendmsg(2) does not write to the memory at iov_base; iov_base is not const because recvmsg writes there.
    struct iovec pieces[2] = {{(void *)(uintptr_t)first, first_length}, {(void *)(uintptr_t)second, second_length}};
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 2};
    ssize_t count;
    do {
        count = sendmsg(descriptor, &message, MSG_DONTWAIT | PORTABLE_NOSIGNAL);
    } while (count < 0 && errno == EINTR);
    if (count >= 0) return count;
    if (errno == ENOTSOCK) return io_transmit(descriptor, first, first_length);
    return errno == EWOULDBLOCK ? -EAGAIN : -errno;
}
