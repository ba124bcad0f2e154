// Waits in plain threads, and the price of releasing the GVL for them. A release costs nothing where no other thread
// wants the GVL, and up to the 100 ms of a quantum beside a CPU-bound thread. So only waits release the GVL. Where
// regaining it was slow, a wait first polls the descriptors with the GVL held: a server nearby answers within
// microseconds.
#ifndef HEDDLE_OS_GVL_H
#define HEDDLE_OS_GVL_H

#include "os/deadline.h"

#include <poll.h>

struct gvl_wait {
    struct pollfd *descriptors;
    size_t count;
    VALUE io;       // the IO of the first descriptor: IO#close in another thread ends the wait. Or nil
    uint32_t looks; // system calls made with the GVL held, …
    uint32_t waits; // … and without it
};

// Waits until a descriptor is ready, for at most `span` nanoseconds. Returns how many are ready, 0 when the span is
// over, or -errno (-EINTR after a signal, or when another thread interrupts this one). Keeps the GVL with a span of 0.
// Raises pending interrupts.
int gvl_wait(struct gvl_wait *wait, int64_t span);

// The system call alone; works with and without the GVL. Returns -EBADF for a number that is not a descriptor.
int gvl_poll(struct pollfd *descriptors, size_t count, int64_t span);

// Counts an operation of a plain thread that ended without a wait. Returns true when the thread's budget (budget.h) is
// spent; the budget then begins again, as after each wait.
bool gvl_spend(size_t bytes);

// For transfers. gvl_contended: regaining the GVL was slow within the last second, and spinning is not switched off;
// then a transfer should keep the GVL as long as more data comes within one spin. gvl_spin polls for one spin at most
// with the GVL held.
int gvl_spin(struct pollfd *descriptors, size_t count);
bool gvl_contended(void);

// Runs a function without the GVL. Ruby knows the IO meanwhile: IO#close in another thread ends its waits. The function
// stores the time of its end in `over`, which tells how long regaining the GVL took. Raises pending interrupts
// afterwards.
void gvl_without(VALUE io, int descriptor, VALUE (*function)(void *), void *argument, const deadline_t *over);

void Init_heddle_gvl(void);

#endif
