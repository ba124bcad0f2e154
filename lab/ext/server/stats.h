/* The server's counters. */
#ifndef HEDDLE_SERVER_STATS_H
#define HEDDLE_SERVER_STATS_H

#include <stddef.h>
#include <stdint.h>

enum { STATS_SIZE = 512 };

struct stats {
    uint64_t connections; /* accepted since the start */
    uint64_t open, most_open;
    uint64_t requests; /* complete heads, good or bad */
    uint64_t refused;  /* answered with 4xx or 5xx */
    uint64_t broken;   /* connections that ended in the middle of a response */
};

struct proxy_stats {
    uint64_t connections; /* accepted since the start */
    uint64_t open, most_open;
    uint64_t failed; /* failed connects to the server */
    uint64_t resets; /* connections that ended in a reset, passed on or requested */
    uint64_t idle;   /* connections closed for lack of traffic */
    uint64_t request_bytes, reply_bytes;
};

/* Each writes the counts and the process's own CPU seconds as one JSON object, and returns its length, which is always
   less than size. */
size_t stats_json(const struct stats *stats, char *buffer, size_t size);
size_t proxy_stats_json(const struct proxy_stats *stats, char *buffer, size_t size);

#endif
