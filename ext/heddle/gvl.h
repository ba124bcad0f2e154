// Waiting in a plain thread, and what it costs to give up the GVL for it: nothing where no other thread wants it, up to the
// 100 ms of a quantum beside one that computes. So it is given up only to wait and, where regaining it was slow, only after a
// look at the descriptors with it held: the reply of a server nearby is there within microseconds.
#ifndef HEDDLE_GVL_H
#define HEDDLE_GVL_H

#include "deadline.h"

#include <poll.h>

struct gvl_wait {
    struct pollfd *descriptors;
    size_t count;
    VALUE io;       // of the first of them: IO#close in another thread ends the wait. Or nil
    uint32_t looks; // system calls made with the GVL held, …
    uint32_t waits; // … and without it
};

// Until one of the descriptors is ready, for `span` nanoseconds at most: how many are, 0 when it is over, or -errno (-EINTR when
// a signal came, or somebody else wants something of this thread). With a span of 0 the GVL is kept. Interrupts raise.
int gvl_wait(struct gvl_wait *wait, int64_t span);

// The system call alone, which does not care whether the GVL is held. -EBADF for what is no descriptor.
int gvl_poll(struct pollfd *descriptors, size_t count, int64_t span);

// What a plain thread does without a wait: true when its budget (budget.h) is spent, which then begins anew, as after each wait.
bool gvl_spend(size_t bytes);

// The same with the GVL held, for a look at most. For transfers: where regaining the GVL was slow lately, and looking was not
// switched off, they are better made with it held as long as more comes within a look.
int gvl_look(struct pollfd *descriptors, size_t count);
bool gvl_contended(void);

// Runs a function without the GVL. The IO is known to Ruby meanwhile: IO#close in another thread ends its waits. The function says
// in `over` when it was done, which tells how long it took to regain the GVL. Interrupts raise afterwards.
void gvl_without(VALUE io, int descriptor, VALUE (*function)(void *), void *argument, const deadline_t *over);

void Init_heddle_gvl(void);

#endif
