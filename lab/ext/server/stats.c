#include "stats.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/resource.h>

size_t stats_json(const struct stats *stats, char *buffer, size_t size)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    int length =
        snprintf(buffer, size,
                 "{\"connections\":%" PRIu64 ",\"open\":%" PRIu64 ",\"most_open\":%" PRIu64 ",\"requests\":%" PRIu64
                 ",\"refused\":%" PRIu64 ",\"broken\":%" PRIu64 ",\"cpu_user\":%lld.%06ld,\"cpu_system\":%lld.%06ld}\n",
                 stats->connections, stats->open, stats->most_open, stats->requests, stats->refused, stats->broken,
                 (long long)usage.ru_utime.tv_sec, (long)usage.ru_utime.tv_usec, (long long)usage.ru_stime.tv_sec,
                 (long)usage.ru_stime.tv_usec);
    if (length < 0) return 0;
    return (size_t)length < size ? (size_t)length : size - 1;
}
