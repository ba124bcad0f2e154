#include "listener.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

/* The kernel limits it to net.core.somaxconn. */
enum { BACKLOG = 65535, ACCEPTS_A_TURN = 1024 };

static bool transient(int error)
{
    return error == EINTR || error == ECONNABORTED || error == EPROTO;
}

static void accept_all(struct source *source, uint32_t events)
{
    struct listener *listener = container_of(source, struct listener, source);
    (void)events;

    for (int i = 0; i < ACCEPTS_A_TURN; i++) { /* level-triggered: the rest is reported again */
        int fd = accept4(source->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0 ? listener->accepted(listener->owner, fd) : transient(errno)) continue;
        if (fd < 0 && errno == EAGAIN) return;
        listener->resting = loop_watch(listener->loop, source, 0) == 0;
        return;
    }
}

void listener_descriptor_is_free(struct listener *listener)
{
    if (!listener->resting) return;
    listener->resting = loop_watch(listener->loop, &listener->source, EPOLLIN) < 0;
}

int listener_open(struct listener *listener, struct loop *loop, struct in_addr address, uint16_t port)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = address};
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    listener->source = (struct source){.fd = fd, .ready = accept_all};
    listener->loop = loop;
    listener->resting = false;
    if (fd < 0) return -1;
    /* accepted sockets inherit TCP_NODELAY */
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0 &&
        bind(fd, (struct sockaddr *)&name, sizeof name) == 0 && listen(fd, BACKLOG) == 0 &&
        loop_watch(loop, &listener->source, EPOLLIN) == 0) {
        return 0;
    }
    int error = errno;
    close(fd);
    listener->source.fd = -1;
    errno = error;
    return -1;
}

uint16_t listener_port(const struct listener *listener)
{
    struct sockaddr_in name;
    socklen_t length = sizeof name;
    if (getsockname(listener->source.fd, (struct sockaddr *)&name, &length) < 0) return 0;
    return ntohs(name.sin_port);
}

void listener_close(struct listener *listener)
{
    loop_close(listener->loop, &listener->source);
}
