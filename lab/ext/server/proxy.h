/* The proxy: every connection that is accepted is joined to one of its own to the server behind, whatever the protocol. */
#ifndef HEDDLE_SERVER_PROXY_H
#define HEDDLE_SERVER_PROXY_H

#include "loop.h"
#include "shape.h"
#include "stats.h"

#include <sys/socket.h>

struct listener;

enum { UPSTREAM_ADDRESSES = 16 };

/* Where the server behind is: a name may have several addresses, and a server listen on some of them. */
struct upstream {
    struct upstream_address {
        struct sockaddr_storage address;
        socklen_t length;
    } addresses[UPSTREAM_ADDRESSES];
    int count;
    int first;        /* the one that is tried first: the last that worked */
    const char *name; /* as it was asked for */
};

struct proxy {
    struct loop *loop;
    struct listener *listener; /* told of every descriptor that is free again */
    struct upstream upstream;
    struct shaping shaping; /* of connections to come */
    uint64_t idle;          /* nanoseconds after which a connection on which nothing moves is closed; 0: never */
    struct proxy_stats stats;
    struct pair *pairs; /* all that are open */
    int last_error;     /* of the last connection to the server behind: each is told once */
    int spare;     /* a socket for the next connection, so that none is accepted without; -1 when descriptors are out */
    int spare_for; /* the address that it is for */
};

/* Takes "HOST:PORT", "[IPv6]:PORT" or "unix:PATH"; looks names up, which may take its time. Returns NULL, or what is wrong. */
const char *upstream_parse(struct upstream *upstream, const char *name);

/* Makes ready to accept; false while there is no descriptor for it. */
bool proxy_prepare(struct proxy *proxy);
/* Takes over the descriptor, closes it in the end, whatever happens. To be called when prepared. */
void proxy_open(struct proxy *proxy, int fd);
/* Gives connections, those that are open too, another shape. */
void proxy_reshape(struct proxy *proxy, const struct shaping *shaping);
/* Resets every connection, on both sides. */
void proxy_reset_all(struct proxy *proxy);
/* Closes everything; nothing may be opened afterwards. */
void proxy_close_all(struct proxy *proxy);

#endif
