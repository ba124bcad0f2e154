/* Lines on standard input that change the proxy while it runs. Each is answered by one line on standard output. */
#ifndef HEDDLE_SERVER_CONTROL_H
#define HEDDLE_SERVER_CONTROL_H

#include "loop.h"
#include "proxy.h"

struct control {
    struct source source;
    struct proxy *proxy;
    char line[512];
    size_t length;
    bool overlong; /* what comes up to the next newline belongs to a line that was refused */
};

/* Watches standard input until it ends. Returns 0, or -1 with errno. */
int control_open(struct control *control, struct proxy *proxy);

#endif
