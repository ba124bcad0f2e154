#include "stats.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/resource.h>

/* Appends to the buffer; cuts off what does not fit. */
__attribute__((format(printf, 4, 5))) static size_t append(char *buffer, size_t size, size_t length, const char *format,
                                                           ...)
{
    va_list arguments;
    va_start(arguments, format);
    int added = vsnprintf(buffer + length, size - length, format, arguments);
    va_end(arguments);
    if (added < 0) return length;
    return length + (size_t)added < size ? length + (size_t)added : size - 1;
}

static size_t append_cpu(char *buffer, size_t size, size_t length)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return append(buffer, size, length, ",\"cpu_user\":%lld.%06ld,\"cpu_system\":%lld.%06ld}\n",
                  (long long)usage.ru_utime.tv_sec, (long)usage.ru_utime.tv_usec, (long long)usage.ru_stime.tv_sec,
                  (long)usage.ru_stime.tv_usec);
}

size_t stats_json(const struct stats *stats, char *buffer, size_t size)
{
    size_t length =
        append(buffer, size, 0,
               "{\"connections\":%" PRIu64 ",\"open\":%" PRIu64 ",\"most_open\":%" PRIu64 ",\"requests\":%" PRIu64
               ",\"refused\":%" PRIu64 ",\"broken\":%" PRIu64,
               stats->connections, stats->open, stats->most_open, stats->requests, stats->refused, stats->broken);
    return append_cpu(buffer, size, length);
}

size_t proxy_stats_json(const struct proxy_stats *stats, char *buffer, size_t size)
{
    size_t length =
        append(buffer, size, 0,
               "{\"connections\":%" PRIu64 ",\"open\":%" PRIu64 ",\"most_open\":%" PRIu64 ",\"failed\":%" PRIu64
               ",\"resets\":%" PRIu64 ",\"idle\":%" PRIu64 ",\"request_bytes\":%" PRIu64 ",\"reply_bytes\":%" PRIu64,
               stats->connections, stats->open, stats->most_open, stats->failed, stats->resets, stats->idle,
               stats->request_bytes, stats->reply_bytes);
    return append_cpu(buffer, size, length);
}
