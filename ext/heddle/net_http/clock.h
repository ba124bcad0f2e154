// The clocks by which connections are judged: the library's, Process.clock_gettime, which tests replace.
#ifndef HEDDLE_NET_HTTP_CLOCK_H
#define HEDDLE_NET_HTTP_CLOCK_H

#include <stdbool.h>

// Seconds between clocks: they stay the same unless the machine is suspended, or a clock is set. NAN: not known.
struct net_http_offsets {
    double boot, day;
};

double net_http_clock_now(void); // monotonic seconds
struct net_http_offsets net_http_clock_offsets(double now);

// Whether a clock has jumped since; also if that is not known.
bool net_http_clock_jumped(struct net_http_offsets before, double now);

void net_http_clock_define(void);

#endif
