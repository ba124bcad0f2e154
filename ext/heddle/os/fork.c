#include "os/fork.h"

#include "heddle.h"
#include "os/bindings.h"

#include <pthread.h>
#include <signal.h>

static unsigned forks;

static void count_in_child(void)
{
    forks++;
}

void fork_watch(void)
{
    pthread_atfork(0, 0, count_in_child);
}

unsigned fork_count(void)
{
    return forks;
}

/*
 * call-seq: Heddle.forks -> Integer
 *
 * @api private How many forks lie between the first process and this one: another number than in the parent.
 */
static VALUE count_of_forks(VALUE self)
{
    (void)self;
    return UINT2NUM(forks);
}

static _Thread_local sigset_t mask_before;
static _Thread_local bool held;

/*
 * call-seq: Heddle.hold_signals(hold) -> nil
 *
 * @api private Has the kernel keep SIGINT and SIGTERM back from the calling thread, and from its child of a fork; with false
 * each of the two gets what came for it meanwhile. A child has its parent's handlers until it has set its own.
 */
static VALUE hold_signals(VALUE self, VALUE hold)
{
    (void)self;
    if (RTEST(hold) == held) return Qnil;
    held = RTEST(hold);
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    if (held) {
        pthread_sigmask(SIG_BLOCK, &ends, &mask_before);
    } else {
        pthread_sigmask(SIG_SETMASK, &mask_before, NULL);
    }
    return Qnil;
}

void Init_heddle_fork(void)
{
    rb_define_singleton_method(heddle_module, "forks", count_of_forks, 0);
    rb_define_singleton_method(heddle_module, "hold_signals", hold_signals, 1);
}
