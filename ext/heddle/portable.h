// Differences between operating systems. extconf.rb probes for each feature and defines HEDDLE_HAS_…; with
// HEDDLE_PORTABLE=1 it defines none of them, so that the plain POSIX code is compiled on Linux, too.
#ifndef HEDDLE_PORTABLE_H
#define HEDDLE_PORTABLE_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef HEDDLE_HAS_SENDFILE
#include <sys/sendfile.h>
#endif

// Without MSG_NOSIGNAL, writing to a peer that has closed raises SIGPIPE. Ruby ignores SIGPIPE unless the program has
// restored the system's default.
#ifdef HEDDLE_HAS_NOSIGNAL
#define PORTABLE_NOSIGNAL MSG_NOSIGNAL
#else
#define PORTABLE_NOSIGNAL 0
#endif

// The peer has shut down its side; unread bytes may still come before the end. Without POLLRDHUP only POLLHUP tells,
// when both sides are shut down.
#ifdef HEDDLE_HAS_POLLRDHUP
#define PORTABLE_POLLRDHUP POLLRDHUP
#else
#define PORTABLE_POLLRDHUP 0
#endif

// Makes an open descriptor non-blocking, and has exec close it. Returns whether that worked.
static inline bool portable_set_flags(int descriptor)
{
    return fcntl(descriptor, F_SETFD, FD_CLOEXEC) == 0 && fcntl(descriptor, F_SETFL, O_NONBLOCK) == 0;
}

// What makes a non-blocking descriptor that exec closes, or returns -1 with errno. With the GVL, Ruby does not fork
// between the steps of systems that need several.

static inline int portable_flagged(int descriptor)
{
    if (descriptor < 0 || portable_set_flags(descriptor)) return descriptor;
    int saved = errno;
    close(descriptor);
    errno = saved;
    return -1;
}

static inline int portable_stream_socket(int family)
{
#ifdef HEDDLE_HAS_CLOEXEC_FLAGS
    return socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
#else
    return portable_flagged(socket(family, SOCK_STREAM, 0));
#endif
}

static inline int portable_accept(int listening)
{
#ifdef HEDDLE_HAS_CLOEXEC_FLAGS
    return accept4(listening, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
#else
    return portable_flagged(accept(listening, NULL, NULL));
#endif
}

static inline int portable_pipe(int ends[2])
{
#ifdef HEDDLE_HAS_CLOEXEC_FLAGS
    return pipe2(ends, O_NONBLOCK | O_CLOEXEC);
#else
    if (pipe(ends) < 0) return -1;
    portable_set_flags(ends[0]);
    portable_set_flags(ends[1]);
    return 0;
#endif
}

// Sends bytes of a file, from its current position, to a non-blocking socket. Returns -1 with ENOSYS where only a read
// and a write can do that.
static inline ssize_t portable_send_file(int socket, int file, size_t length)
{
#ifdef HEDDLE_HAS_SENDFILE
    return sendfile(socket, file, NULL, length);
#else
    (void)socket, (void)file, (void)length;
    errno = ENOSYS;
    return -1;
#endif
}

// Returns whether the two files were last modified at the same moment.
static inline bool portable_same_mtime(const struct stat *one, const struct stat *other)
{
#if defined(HEDDLE_HAS_ST_MTIM)
    return one->st_mtim.tv_sec == other->st_mtim.tv_sec && one->st_mtim.tv_nsec == other->st_mtim.tv_nsec;
#elif defined(HEDDLE_HAS_ST_MTIMESPEC) // macOS
    return one->st_mtimespec.tv_sec == other->st_mtimespec.tv_sec &&
           one->st_mtimespec.tv_nsec == other->st_mtimespec.tv_nsec;
#else
    return one->st_mtime == other->st_mtime; // in seconds
#endif
}

#endif
