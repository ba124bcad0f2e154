/* What the server counts. */
#ifndef HEDDLE_SERVER_STATS_H
#define HEDDLE_SERVER_STATS_H

#include <stddef.h>
#include <stdint.h>

struct stats {
    uint64_t connections; /* accepted since the start */
    uint64_t open, most_open;
    uint64_t requests; /* whole heads, good or bad */
    uint64_t refused;  /* answered with 4xx or 5xx */
    uint64_t broken;   /* connections that ended in the middle of an answer */
};

/* Writes the counts and the process's own CPU seconds as one JSON object. Returns its length, always less than size. */
size_t stats_json(const struct stats *stats, char *buffer, size_t size);

#endif
