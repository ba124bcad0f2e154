#include "loop/internals.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

// What the kernel allowed at the start it may refuse later: a seccomp filter is installed, memory is short, or somebody
// closes the descriptor of the ring. No task has done anything wrong then.

static void forget(struct loop_wait *wait, void *unused)
{
    (void)unused;
    wait->armed = false;
}

// With all that wait for it.
static void arm_again(struct loop *loop, struct loop_wait *wait)
{
    for (struct loop_wait *next; wait; wait = next) {
        next = wait->fd_next;
        int error = loop->backend->arm(loop->backend_state, wait, loop->descriptors[wait->descriptor].waits);
        wait->armed = error == 0 || error == ESTALE;
        if (!wait->armed) descriptor_fire(loop, wait, error == EPERM ? wait->events : 0, error == EPERM ? 0 : error);
    }
}

void loop_fall_back(struct loop *loop, int error)
{
    const struct backend *failed = loop->backend, *next = failed;
    void *failed_state = loop->backend_state, *state = NULL;
    while ((next = backend_after(next)) && !(state = next->open(loop->wakeup->reader)))
        continue;
    if (!state) rb_syserr_fail(error, failed->name);
    loop->backend = next;
    loop->backend_state = state;
    failed->close(failed_state, false);
    wait_slab_each(&loop->waits, forget, NULL);
    for (int i = 0; i < loop->descriptor_capacity; i++)
        arm_again(loop, loop->descriptors[i].waits);
    // Not by Kernel#warn: this may be within any wait of any fiber, where no Ruby code is to run.
    fprintf(stderr, "heddle: the kernel refuses %s from now on (%s); going on with %s\n", failed->name, strerror(error),
            next->name);
}
