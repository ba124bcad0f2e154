/* One HTTP connection: requests are read, delayed and answered one after another. */
#ifndef HEDDLE_SERVER_CONNECTION_H
#define HEDDLE_SERVER_CONNECTION_H

#include "loop.h"
#include "stats.h"

struct listener;

/* What every connection shares. */
struct http {
    struct loop *loop;
    struct stats stats;
    struct connection *connections; /* all that are open */
    struct listener *listener;      /* told of every descriptor that is free again */
};

/* Takes over the descriptor, closes it in the end, whatever happens. */
void connection_open(struct http *http, int fd);
void connection_close_all(struct http *http);

#endif
