#include "net_http/clock.h"

#include "net_http/names.h"

#include <math.h>
#include <ruby.h>
#include <time.h>

// Seconds by which two clocks may drift apart before that counts as a jump.
#define JUMP 1.0

static VALUE boot_clock;

static bool replaced(void) // as tests do
{
    return !rb_method_basic_definition_p(CLASS_OF(rb_mProcess), id_clock_gettime);
}

static double clock_time(VALUE clock, bool replaced)
{
    struct timespec time;
    if (replaced) return NUM2DBL(rb_funcall(rb_mProcess, id_clock_gettime, 1, clock));
    if (clock_gettime((clockid_t)FIX2INT(clock), &time) < 0) rb_sys_fail("clock_gettime");
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

double net_http_clock_now(void)
{
    return clock_time(INT2FIX(CLOCK_MONOTONIC), replaced());
}

struct net_http_offsets net_http_clock_offsets(double now)
{
    bool other = replaced();
    return (struct net_http_offsets){clock_time(boot_clock, other) - now,
                                     clock_time(INT2FIX(CLOCK_REALTIME), other) - now};
}

bool net_http_clock_jumped(struct net_http_offsets before, double now)
{
    struct net_http_offsets after = net_http_clock_offsets(now);
    return !(fabs(after.boot - before.boot) <= JUMP && fabs(after.day - before.day) <= JUMP); // NAN is never less
}

void net_http_clock_define(void)
{
    ID boot_time = rb_intern("CLOCK_BOOTTIME"); // Linux's: it goes on while the machine is suspended
    boot_clock =
        rb_const_defined(rb_mProcess, boot_time) ? rb_const_get(rb_mProcess, boot_time) : INT2FIX(CLOCK_MONOTONIC);
}
