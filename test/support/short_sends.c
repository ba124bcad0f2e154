// An LD_PRELOAD library: after send_at_most(n), send and sendmsg take at most n bytes of each call, as a socket does
// whose buffer is nearly full; with 0 they take none, and fail with EAGAIN. After send_at_most(-1) they do as they
// always do. refused_sends() is how often they took none.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <sys/socket.h>
#include <sys/types.h>

static long most = -1;
static long refused;

void send_at_most(long bytes)
{
    most = bytes;
}

long refused_sends(void)
{
    return refused;
}

static ssize_t refuse(void)
{
    refused++;
    errno = EAGAIN;
    return -1;
}

ssize_t send(int socket, const void *bytes, size_t length, int flags)
{
    static ssize_t (*original)(int, const void *, size_t, int);
    if (!original) original = (ssize_t(*)(int, const void *, size_t, int))dlsym(RTLD_NEXT, "send");
    if (most == 0) return refuse();
    return original(socket, bytes, most > 0 && length > (size_t)most ? (size_t)most : length, flags);
}

// Sends of the first piece only, when limited.
ssize_t sendmsg(int socket, const struct msghdr *message, int flags)
{
    static ssize_t (*original)(int, const struct msghdr *, int);
    if (!original) original = (ssize_t(*)(int, const struct msghdr *, int))dlsym(RTLD_NEXT, "sendmsg");
    if (most == 0) return refuse();
    if (most < 0) return original(socket, message, flags);
    return send(socket, message->msg_iov[0].iov_base, message->msg_iov[0].iov_len, flags);
}
