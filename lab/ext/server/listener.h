/* The listening socket: accepts until there is nothing to accept, and rests while descriptors are out. */
#ifndef HEDDLE_SERVER_LISTENER_H
#define HEDDLE_SERVER_LISTENER_H

#include "connection.h"
#include "loop.h"

#include <netinet/in.h>
#include <stdint.h>

struct listener {
    struct source source;
    struct http http;
    bool resting; /* no descriptor was free at the last accept */
};

/* Binds and listens. `port` 0 picks a free one. Returns 0, or -1 with errno. */
int listener_open(struct listener *listener, struct loop *loop, struct in_addr address, uint16_t port);
/* The port in use, in host byte order. */
uint16_t listener_port(const struct listener *listener);
void listener_close(struct listener *listener);

#endif
