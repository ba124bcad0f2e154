#include "net_http/http_wait.h"

#include "deadline_scope.h"
#include "loop/scheduler.h"
#include "shims.h"

#include <errno.h>
#include <poll.h>
#include <time.h>

enum { SLOW = 1000000, LOOK = 200000 }; // nanoseconds

bool http_wait_looks = true;

// Another thread computes: it took us long to get the GVL back.
static bool contended;

bool http_scheduled(void)
{
    return !NIL_P(rb_fiber_scheduler_current());
}

void http_courtesy(void)
{
    VALUE scheduler = rb_fiber_scheduler_current();
    if (NIL_P(scheduler) || !scheduler_loop(scheduler)) return;
    loop_courtesy(scheduler_entered(scheduler));
}

int http_poll(int descriptor, short events, int64_t span)
{
    struct pollfd asked = {.fd = descriptor, .events = events};
    struct timespec limit = {.tv_sec = span / 1000000000, .tv_nsec = span % 1000000000};
    int found = ppoll(&asked, 1, span == DEADLINE_NEVER ? NULL : &limit, NULL);
    if (found < 0) return -errno;
    return found && asked.revents & POLLNVAL ? -EBADF : found;
}

struct region {
    int descriptor;
    short events;
    int64_t span;
    int result;
    deadline_t woke;
};

static VALUE poll_without_gvl(void *argument)
{
    struct region *region = argument;
    region->result = http_poll(region->descriptor, region->events, region->span);
    region->woke = deadline_now();
    return Qnil;
}

void http_outside(VALUE socket, VALUE (*function)(void *), void *argument, int descriptor, const deadline_t *woke)
{
    shim_io_blocking_region(socket, function, argument, descriptor);
    contended = deadline_now() - *woke > SLOW;
}

static bool wait_in_thread(VALUE socket, int descriptor, short events, int64_t span)
{
    if (contended && http_wait_looks) {
        int found = http_poll(descriptor, events, span < LOOK ? span : LOOK);
        if (found > 0) return true;
    }
    deadline_t now = deadline_now();
    deadline_t until = deadline_after(now, span);
    deadline_t in_force = deadline_in_force();
    for (;;) {
        deadline_t earlier = until < in_force ? until : in_force;
        struct region region = {.descriptor = descriptor, .events = events};
        region.span = earlier == DEADLINE_NEVER ? DEADLINE_NEVER : earlier > now ? earlier - now : 0;
        http_outside(socket, poll_without_gvl, &region, descriptor, &region.woke);
        if (region.result > 0) return true;
        if (region.result < 0 && region.result != -EINTR) rb_syserr_fail(-region.result, "waiting for a socket");
        rb_io_descriptor(socket); // raises when it is closed
        now = deadline_now();
        if (now >= in_force) deadline_check();
        if (now >= until) return false;
    }
}

bool http_wait(VALUE socket, int descriptor, short events, int64_t span)
{
    VALUE scheduler = rb_fiber_scheduler_current();
    if (NIL_P(scheduler)) return wait_in_thread(socket, descriptor, events, span);
    if (!scheduler_loop(scheduler)) {
        VALUE limit = span == DEADLINE_NEVER ? Qnil : rb_float_new((double)span / 1e9);
        return RTEST(rb_io_wait(socket, INT2NUM(events), limit));
    }
    int ready = loop_wait_descriptor(scheduler_entered(scheduler), descriptor, events, span);
    if (ready == -ECANCELED) rb_raise(rb_eIOError, "stream closed in another thread");
    if (ready < 0) rb_syserr_fail(-ready, "waiting for a socket");
    return ready > 0;
}
