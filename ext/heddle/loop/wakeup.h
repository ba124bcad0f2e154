// How other threads reach a loop. Ruby threads hold the GVL when they unblock a fiber, and change the ready queue
// themselves; native threads (the resolver) post a note to a lock-free list. Then either wakes the loop, which costs a
// system call only while the loop sleeps.
#ifndef HEDDLE_LOOP_WAKEUP_H
#define HEDDLE_LOOP_WAKEUP_H

#include "heddle.h"

#include <stdatomic.h>

struct wakeup_note {
    struct wakeup_note *next;
    uint64_t key;                           // of the completed wait
    void (*drop)(struct wakeup_note *note); // called once the loop has seen the note, or the loop is gone; any thread
};

struct wakeup {
    atomic_int references; // the loop's own, and one for every job of a native thread
    int reader;            // an eventfd; or the two ends of a pipe without eventfd
    int writer;
    atomic_bool sleeping;
    _Atomic(struct wakeup_note *) notes;
};

// NULL with errno if there is no descriptor or memory. Plain malloc: native threads release it, too.
struct wakeup *wakeup_new(void);
struct wakeup *wakeup_retain(struct wakeup *wakeup);
void wakeup_release(struct wakeup *wakeup);

// Any thread, with or without the GVL, also a signal handler. Keeps errno.
void wakeup_signal(struct wakeup *wakeup);

// Like wakeup_signal, but writes only while the loop sleeps.
void wakeup_nudge(struct wakeup *wakeup);

// Any thread. Keeps the note until wakeup_take returns it or the last reference is released.
void wakeup_post(struct wakeup *wakeup, struct wakeup_note *note);

// Takes the posted notes, oldest first.
struct wakeup_note *wakeup_take(struct wakeup *wakeup);

// Resets the descriptor, so that it is no longer ready.
void wakeup_drain(struct wakeup *wakeup);

#endif
