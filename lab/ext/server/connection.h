/* One HTTP connection: reads requests, delays them and answers them one after another. */
#ifndef HEDDLE_SERVER_CONNECTION_H
#define HEDDLE_SERVER_CONNECTION_H

#include "loop.h"
#include "stats.h"

struct listener;

/* Shared by all connections. */
struct http {
    struct loop *loop;
    struct stats stats;
    struct connection *connections; /* all that are open */
    struct listener *listener;      /* told when a descriptor is free again */
};

/* Takes ownership of the descriptor, and closes it in every case. */
void connection_open(struct http *http, int fd);
void connection_close_all(struct http *http);

#endif
