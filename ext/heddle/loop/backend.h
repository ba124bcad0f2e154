// What a backend is to the loop: the kernel's way to say that a descriptor is ready. One backend a file; the loop
// knows none of them by name.
#ifndef HEDDLE_LOOP_BACKEND_H
#define HEDDLE_LOOP_BACKEND_H

#include "loop/wait.h"

struct backend {
    const char *name;

    // 0, or the errno with which this kernel refuses it. Leaves nothing open.
    int (*probe)(void);

    // Called on the thread that will poll. Returns its state, or NULL with errno.
    void *(*open)(int wakeup_descriptor);

    // `forked`: the kernel's side belongs to the parent; give up our copies and touch nothing shared.
    void (*close)(void *state, bool forked);

    // Ask for wait->events on wait->descriptor, once. `all` are the waits on this descriptor, `wait` the first of them.
    // 0; ESTALE when it is armed but the others wait for a file that had this number before; EPERM for a descriptor
    // that is always ready (a regular file); or the errno that the wait ends with.
    int (*arm)(void *state, struct loop_wait *wait, struct loop_wait *all);

    // Forget an armed wait. `rest` are the others on this descriptor, or NULL. What the kernel still says of it later
    // names an old generation.
    void (*disarm)(void *state, struct loop_wait *wait, struct loop_wait *rest);

    // Somebody closes this descriptor. Any thread, with the GVL. Or NULL.
    void (*closing)(void *state, int descriptor);

    // Let the kernel look, and wait for at most `timeout` nanoseconds (0: no waiting; DEADLINE_NEVER), which is until
    // the instant `until`; it may end before. Touches nothing of Ruby: the loop calls it without the GVL when it may
    // wait. Returns 0 or an errno (EINTR is none): the kernel refuses what it allowed before, and the loop goes on with
    // another backend, which it asks for all armed waits again.
    int (*wait)(void *state, int64_t timeout, deadline_t until);

    // Hand what `wait` found to loop_descriptor_ready, loop_wait_ready or loop_signalled. With the GVL. Returns how
    // many.
    int (*collect)(void *state, struct loop *loop);
};

// The backend that HEDDLE_BACKEND names, else the best that the kernel allows. Raises ArgumentError for an unknown
// name, Heddle::BackendUnavailable for one that this build or this kernel has not.
const struct backend *backend_choose(void);

// The next best after one that failed after it was opened; NULL after the last. It has not been probed.
const struct backend *backend_after(const struct backend *failed);

// Names of those that this build has, best first; each is probed once a process.
VALUE backend_available_names(void);

#endif
