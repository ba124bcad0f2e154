/* The command line. */
#ifndef HEDDLE_SERVER_OPTIONS_H
#define HEDDLE_SERVER_OPTIONS_H

#include "shape.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

struct options {
    struct in_addr address;
    uint16_t port;
    bool exit_with_parent;
    const char *proxy; /* address of the server behind the proxy; NULL: be the HTTP server */
    struct shaping shaping;
    uint64_t idle; /* nanoseconds */
    bool control;
};

/* Reads the options. Ends the process with a message if they are invalid, and after --help. */
void options_read(struct options *options, int argc, char **argv);

#endif
