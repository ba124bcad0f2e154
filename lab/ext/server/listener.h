/* The listening socket: accepts all waiting connections, and pauses while no descriptor is free. */
#ifndef HEDDLE_SERVER_LISTENER_H
#define HEDDLE_SERVER_LISTENER_H

#include "loop.h"

#include <netinet/in.h>
#include <stdint.h>

struct listener {
    struct source source;
    struct loop *loop;
    bool resting;                          /* no descriptor was free at the last accept */
    bool (*accepted)(void *owner, int fd); /* false: no descriptor is left for another connection */
    void *owner;
};

/* Binds and listens. Set `accepted` and `owner` first. `port` 0 picks a free one. Returns 0, or -1 with errno. */
int listener_open(struct listener *listener, struct loop *loop, struct in_addr address, uint16_t port);
/* Call it after each close of a descriptor. */
void listener_descriptor_is_free(struct listener *listener);
/* The port in use, in host byte order. */
uint16_t listener_port(const struct listener *listener);
void listener_close(struct listener *listener);

#endif
