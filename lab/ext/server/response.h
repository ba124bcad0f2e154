/* Which answer a request gets. Knows no socket. */
#ifndef HEDDLE_SERVER_RESPONSE_H
#define HEDDLE_SERVER_RESPONSE_H

#include "request.h"
#include "stats.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct response {
    uint64_t delay;   /* nanoseconds to wait before the first byte */
    uint64_t pattern; /* bytes of the pattern that follow `bytes` */
    size_t length;    /* of `bytes` */
    bool keep_alive;
    bool drain;       /* the client may still be sending: read on after the answer, then close */
    char bytes[1024]; /* the head, and a short body */
};

/* The answer to a whole request. */
void response_for(struct response *response, const struct request *request, struct stats *stats);
/* The answer to a head that could not be parsed. */
void response_refuse(struct response *response, enum request_result result, struct stats *stats);

/* The body of /b/BYTES: lines of 16 bytes, each its own offset modulo 1 MiB as 15 hexadecimal digits. */
enum { PATTERN_SIZE = 1 << 20 };
extern char response_pattern[PATTERN_SIZE];
void response_make_pattern(void);

#endif
