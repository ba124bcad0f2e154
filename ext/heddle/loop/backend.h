// A backend: the kernel's way to report ready descriptors. One backend a file; the poller knows none of them by name.
#ifndef HEDDLE_LOOP_BACKEND_H
#define HEDDLE_LOOP_BACKEND_H

#include "loop/wait.h"

struct poller;

struct backend {
    const char *name;

    // Returns 0, or the errno with which this kernel refuses the backend. Leaves nothing open.
    int (*probe)(void);

    // Called on the thread that will poll. Returns the backend's state, or NULL with errno.
    void *(*open)(int wakeup_descriptor);

    // `forked`: the kernel's objects belong to the parent. Closes this process's copies and touches nothing shared.
    void (*close)(void *state, bool forked);

    // Asks for wait->events on wait->descriptor, once. `asked`: at least what all waits on this descriptor ask for.
    // Returns 0; ESTALE when `wait` is armed but the other waits belong to a file that had this number before; EPERM
    // for a descriptor that is always ready (a regular file); or the errno that the wait ends with.
    int (*arm)(void *state, struct loop_wait *wait, short asked);

    // Forgets an armed wait, which may have been the last on this descriptor. Events that the kernel still reports for
    // the wait carry an old generation.
    void (*disarm)(void *state, struct loop_wait *wait, bool last);

    // The descriptor is about to be closed. Any thread, with the GVL. The member may be NULL.
    void (*closing)(void *state, int descriptor);

    // Polls the kernel and waits for at most `timeout` nanoseconds (0: no waiting; DEADLINE_NEVER), which is until the
    // instant `until`; may return earlier. Touches nothing of Ruby: the poller calls it without the GVL when it may
    // wait. Returns 0 (also after EINTR) or an errno: the kernel refuses what it allowed before, and the poller
    // replaces this backend by another one, in which it arms all armed waits again.
    int (*wait)(void *state, int64_t timeout, deadline_t until);

    // Hands the events that `wait` found to poller_descriptor_ready, poller_wait_ready, poller_signalled, or, for a
    // descriptor that the kernel does not know any more, to poller_descriptor_gone. Called with the GVL. Returns the
    // number of events.
    int (*collect)(void *state, struct poller *poller);
};

// The backend that HEDDLE_BACKEND names, or else the best that the kernel allows. Raises ArgumentError for an unknown
// name, Heddle::BackendUnavailable for a backend that this build or this kernel lacks.
const struct backend *backend_choose(void);

// The next best backend, after a backend failed that had been opened; NULL after the last. The result is not probed.
const struct backend *backend_after(const struct backend *failed);

// Names of the usable backends of this build, best first. Each backend is probed once a process.
VALUE backend_available_names(void);

// The backends of this build that the kernel refuses, each with the SystemCallError.
VALUE backend_refusals(void);

#endif
