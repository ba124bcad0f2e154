// Watches the loops for turns that last too long. A native thread looks at the loops' records (loop/turn_record.h)
// some times in each limit, and takes samples of a thread whose turn lasts (sampler.h). Once the loop goes on, the
// loop's own thread makes the report, of the samples and of what the kernel says of the threads.
#ifndef HEDDLE_INSIGHT_STALL_WATCH_H
#define HEDDLE_INSIGHT_STALL_WATCH_H

#include "insight/sampler.h"

struct loop;

enum stall_reason {
    STALL_RUBY,    // Ruby code computed
    STALL_NATIVE,  // C code held the GVL
    STALL_GC,      // GC ran
    STALL_GVL,     // another thread had the GVL
    STALL_KERNEL,  // the kernel did not run the thread
    STALL_BLOCKED, // a system call or a lock held the thread
    STALL_DEADLINE // a plain thread missed a deadline by computing
};

enum { STALL_WAITERS = 8 };

struct stall {
    enum stall_reason reason;
    int64_t length, cpu, gc; // nanoseconds; `cpu`: used by the thread, or -1
    int64_t ended;           // CLOCK_REALTIME
    VALUE task;              // or 0
    uint64_t number;         // of the task
    VALUE thread;            // the loop's
    int culprit;             // the kernel's number of the thread that had the GVL, or 0
    VALUE place;             // an Array of lines, for STALL_DEADLINE; or 0
    struct frames frames;    // of the culprit, if there is one
    uint32_t waited;         // fibers that waited meanwhile, of which the longest …
    struct {
        VALUE task;
        uint64_t number;
        int64_t length;
    } waiters[STALL_WAITERS];
};

// Watches for stalls of so many nanoseconds; 0 ends that. Raises ThreadError if no thread can be started.
void stall_watch_set(int64_t limit);

// In a child of fork: forgets what is the parent's.
void stall_watch_forked(void);

// Adds a loop that runs already. `thread`: the kernel's number of its thread.
void stall_watch_loop(struct loop *loop, int thread);

// The first stall that was not taken, or NULL; its lists may still grow. stall_take removes it.
struct stall *stall_first(void);
void stall_take(void);

// Waits for so many nanoseconds until there is a stall. One thread at a time. May return earlier. Raises interrupts.
void stall_wait(int64_t span);

// Ends that wait, if a thread is in it.
void stall_wake(void);

// How many were lost, because too many came before one was taken.
uint64_t stalls_lost(void);

void stall_watch_mark(void);

#endif
