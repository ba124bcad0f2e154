// The record of one parked fiber: what it waits for, and how that ended. Records live in slabs that are never
// given back while the loop lives, and are recycled with a new generation: a completion that comes too late finds
// either a record of another generation or none that is parked, and is harmless.
#ifndef HEDDLE_LOOP_WAIT_H
#define HEDDLE_LOOP_WAIT_H

#include "loop/timer.h"

struct loop;
struct wait_owner;

enum wait_kind {
    WAIT_BLOCK,      // a Mutex, a Queue, a join: ended by unblock
    WAIT_SLEEP,      // a sleep: ended by its timer, or by unblock as well
    WAIT_DESCRIPTOR, // ended by the backend
    WAIT_SELECT,     // ended by one of its children, each a WAIT_MEMBER
    WAIT_MEMBER,     // one descriptor of a select; no fiber of its own
    WAIT_NATIVE,     // ended by a native thread (resolver)
    WAIT_TURN,       // ready at once: gave its turn away
    WAIT_IDLE,       // a carrier between two tasks
    WAIT_KINDS
};

enum wait_state { WAIT_FREE, WAIT_PARKED, WAIT_READY, WAIT_RUNNING };

struct loop_wait {
    struct timer timer;
    VALUE fiber;
    union {
        VALUE blocker;            // what a WAIT_BLOCK waits for, for those who ask; or 0
        struct loop_wait *parent; // of a WAIT_MEMBER
    };
    VALUE exception;                     // to be raised in the fiber when it wakes, unless the wait has completed; or 0
    struct wait_owner *owner;            // whom an expiry or a cancel is raised in
    struct loop_wait *prev, *next;       // ready queue; `next` alone: free list, idle carriers
    struct loop_wait *fd_prev, *fd_next; // the others that wait for this descriptor
    uint32_t index;
    uint32_t generation;
    deadline_t since; // about when it began: the time of the last look at the kernel
    int descriptor;
    short events; // poll(2)'s bits
    short revents;
    uint8_t kind;
    uint8_t state;
    bool timed_out;
    bool completed; // what it waited for came
    bool armed;     // the backend knows of it
    bool indexed;   // can be found by its fiber
    bool starter;   // ready in front of the others, because its fiber started another one
    int error;      // errno with which the wait failed, or 0
};

// Names a record in places that outlive it (the kernel, a native thread): generation above, index below.
static inline uint64_t wait_key(const struct loop_wait *wait)
{
    return (uint64_t)wait->generation << 32 | wait->index;
}

struct wait_slab {
    struct loop_wait **chunks;
    uint32_t chunk_count;
    struct loop_wait *free;
};

// A fresh record in state WAIT_PARKED. Raises NoMemoryError before anything has changed.
struct loop_wait *wait_acquire(struct wait_slab *slab, enum wait_kind kind);
void wait_release(struct wait_slab *slab, struct loop_wait *wait);

// The record of that key, if it still stands for the same wait.
struct loop_wait *wait_find(const struct wait_slab *slab, uint64_t key);

void wait_slab_each(const struct wait_slab *slab, void (*visit)(struct loop_wait *wait, void *argument),
                    void *argument);
size_t wait_slab_size(const struct wait_slab *slab);
void wait_slab_free(struct wait_slab *slab);

#endif
