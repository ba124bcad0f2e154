#include "net_http/wait.h"

#include "loop/park.h"
#include "scope/deadline_scope.h"
#include "scope/thread_wait.h"
#include "shims.h"
#include "task/current.h"

#include <errno.h>

bool net_http_scheduled(void)
{
    return !NIL_P(rb_fiber_scheduler_current());
}

char *net_http_scratch(size_t size)
{
    struct loop *loop = size <= LOOP_SCRATCH ? context_of_fiber().loop : NULL;
    return loop ? loop_scratch(loop) : NULL;
}

static bool socket_in_thread(VALUE socket, int descriptor, short events, int64_t span)
{
    struct pollfd asked = {.fd = descriptor, .events = events};
    struct gvl_wait wait = {.descriptors = &asked, .count = 1, .io = socket};
    deadline_t until = deadline_after(deadline_now(), span);
    for (;;) {
        int found = thread_wait(&wait, until);
        if (found > 0) return true;
        if (found < 0 && found != -EINTR) rb_syserr_fail(-found, "waiting for a socket");
        rb_io_descriptor(socket); // raises if the socket is closed
        if (deadline_now() < until) continue;
        deadline_check();
        return false;
    }
}

bool net_http_wait(VALUE socket, int descriptor, short events, int64_t span)
{
    struct context context = context_of_fiber();
    if (NIL_P(context.scheduler)) return socket_in_thread(socket, descriptor, events, span);
    if (!context.loop) {
        deadline_refuse_late();
        VALUE limit = span == DEADLINE_NEVER ? Qnil : rb_float_new((double)span / 1e9);
        return RTEST(rb_io_wait(socket, INT2NUM(events), limit));
    }
    loop_enter(context.loop);
    int ready = loop_wait_descriptor(context.loop, descriptor, events, span);
    if (ready == -ECANCELED) rb_raise(rb_eIOError, "stream closed in another thread");
    if (ready < 0) rb_syserr_fail(-ready, "waiting for a socket");
    return ready > 0;
}
