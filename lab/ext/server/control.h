/* Lines on standard input change the proxy while it runs. One line on standard output answers each of them. */
#ifndef HEDDLE_SERVER_CONTROL_H
#define HEDDLE_SERVER_CONTROL_H

#include "loop.h"
#include "proxy.h"

struct control {
    struct source source;
    struct proxy *proxy;
    char line[512];
    size_t length;
    bool overlong; /* the input up to the next newline belongs to a refused line */
};

/* Watches standard input until it ends. Returns 0, or -1 with errno. */
int control_open(struct control *control, struct proxy *proxy);

#endif
