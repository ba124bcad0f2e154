#include "os/fork.h"

#include "heddle.h"

#include <pthread.h>
#include <signal.h>

static unsigned forks, seen;

static void count_in_parent(void)
{
    seen++;
}

static void count_in_child(void)
{
    forks++;
    seen++;
}

void fork_watch(void)
{
    pthread_atfork(0, count_in_parent, count_in_child);
}

unsigned fork_count(void)
{
    return forks;
}

unsigned forks_seen(void)
{
    return seen;
}

/*
 * call-seq: Heddle.forks -> Integer
 *
 * The number of forks between the process that loaded Heddle and this one; it differs from the parent's.
 *
 * @api private
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
 * With true, makes the kernel hold back SIGINT and SIGTERM from the calling thread, and from a child that it forks.
 * With false, each of the two processes receives the signals that came meanwhile. Needed because a child runs its
 * parent's handlers until it has set its own.
 *
 * @api private
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
    fork_watch();
    rb_define_singleton_method(heddle_module, "forks", count_of_forks, 0);
    rb_define_singleton_method(heddle_module, "hold_signals", hold_signals, 1);
}
