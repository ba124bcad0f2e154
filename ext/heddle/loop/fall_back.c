#include "loop/poller.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

// The kernel may refuse later what it allowed first: a seccomp filter is installed, memory is short, or other code
// closes the ring's descriptor. No task has done anything wrong then, so the poller changes to another backend.

static void fall_back_forget(struct loop_wait *wait, void *unused)
{
    (void)unused;
    wait->armed = false;
}

struct arming {
    struct poller *poller;
    struct loop_wait *wait;
    int error;
};

static VALUE fall_back_arm(VALUE argument)
{
    struct arming *arming = (struct arming *)argument;
    arming->error = descriptor_ask(arming->poller, arming->wait);
    return Qnil;
}

// Without memory the wait fails, and no other wait does: one that is not armed would never end.
static int arm_or_fail(struct poller *poller, struct loop_wait *wait)
{
    struct arming arming = {.poller = poller, .wait = wait};
    int raised = 0;
    rb_protect(fall_back_arm, (VALUE)&arming, &raised);
    if (!raised) return arming.error;
    rb_set_errinfo(Qnil);
    return ENOMEM;
}

// Arms the wait and all others on its descriptor.
static void arm_again(struct poller *poller, struct loop_wait *wait)
{
    for (struct loop_wait *next; wait; wait = next) {
        next = wait->fd_next;
        int error = arm_or_fail(poller, wait);
        wait->armed = error == 0 || error == ESTALE;
        if (!wait->armed) descriptor_fire(poller, wait, error == EPERM ? wait->events : 0, error == EPERM ? 0 : error);
    }
}

void poller_fall_back(struct poller *poller, int error)
{
    const struct backend *failed = poller->backend, *next = failed;
    void *failed_state = poller->backend_state, *state = NULL;
    while ((next = backend_after(next)) && !(state = next->open(poller->wakeup->reader)))
        continue;
    if (!state) rb_syserr_fail(error, failed->name);
    poller->backend = next;
    poller->backend_state = state;
    failed->close(failed_state, false);
    wait_slab_each(&poller->waits, fall_back_forget, NULL);
    for (int i = 0; i < poller->descriptor_capacity; i++)
        arm_again(poller, poller->descriptors[i].waits);
    // Not Kernel#warn: this may run within any wait of any fiber, where no Ruby code must run.
    fprintf(stderr, "heddle: the kernel refuses %s from now on (%s); continuing with %s\n", failed->name,
            strerror(error), next->name);
}
