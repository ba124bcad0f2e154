/* The proxy: joins each connection that it accepts to a connection of its own to the server, whatever the protocol. */
#ifndef HEDDLE_SERVER_PROXY_H
#define HEDDLE_SERVER_PROXY_H

#include "loop.h"
#include "shape.h"
#include "stats.h"

#include <sys/socket.h>

struct listener;

enum { UPSTREAM_ADDRESSES = 16 };

/* The address of the server behind the proxy: a name may have several addresses, and a server may listen on only
   some. */
struct upstream {
    struct upstream_address {
        struct sockaddr_storage address;
        socklen_t length;
    } addresses[UPSTREAM_ADDRESSES];
    int count;
    int first;        /* the address to try first: the last that worked */
    const char *name; /* as given */
};

struct proxy {
    struct loop *loop;
    struct listener *listener; /* told when a descriptor is free again */
    struct upstream upstream;
    struct shaping shaping; /* for new connections */
    uint64_t idle;          /* nanoseconds without traffic after which a connection is closed; 0: never */
    struct proxy_stats stats;
    struct pair *pairs; /* all that are open */
    int last_error;     /* of the last connection to the server: each is reported once */
    int spare;          /* a socket for the next connection, made before accepting; -1 without a free descriptor */
    int spare_for;      /* the index of its address */
};

/* Takes "HOST:PORT", "[IPv6]:PORT" or "unix:PATH". Looks names up, which may block. Returns NULL or an error text. */
const char *upstream_parse(struct upstream *upstream, const char *name);

/* Prepares to accept a connection; false if no descriptor is free. */
bool proxy_prepare(struct proxy *proxy);
/* Takes ownership of the descriptor, and closes it in every case. Call it after proxy_prepare. */
void proxy_open(struct proxy *proxy, int fd);
/* Sets another shape, for open connections, too. */
void proxy_reshape(struct proxy *proxy, const struct shaping *shaping);
/* Resets every connection, on both sides. */
void proxy_reset_all(struct proxy *proxy);
/* Closes everything; nothing may be opened afterwards. */
void proxy_close_all(struct proxy *proxy);

#endif
