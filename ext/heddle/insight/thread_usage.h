// What the kernel knows of the threads of this process. For native threads without the GVL: nothing here allocates.
#ifndef HEDDLE_INSIGHT_THREAD_USAGE_H
#define HEDDLE_INSIGHT_THREAD_USAGE_H

#include "os/deadline.h"

#include <stddef.h>

// Nanoseconds of CPU time that the thread has used, or -1 if that is not known. `thread`: the kernel's number.
int64_t thread_cpu(int thread);

// The same of the calling thread; 0 if that is not known. May be called in a signal's handler.
int64_t thread_own_cpu(void);

// Nanoseconds for which the thread was to run and had no processor, or -1 if that is not known.
int64_t thread_delay(int thread);

enum thread_state {
    THREAD_UNKNOWN,
    THREAD_READY,   // runs, or waits for a processor
    THREAD_LOCK,    // waits for another thread: a mutex, a condition, and so the GVL
    THREAD_CALL,    // waits in another system call
    THREAD_STOPPED, // SIGSTOP, or a debugger
    THREAD_STATES
};

enum thread_state thread_state(int thread);

struct thread_usage {
    int thread;
    int64_t cpu;
};

// Fills in the usage of as many threads as there is room for. Returns their number.
size_t thread_usages(struct thread_usage *usages, size_t room);

#endif
