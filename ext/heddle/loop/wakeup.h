// How other threads reach a loop. Ruby threads hold the GVL when they unblock a fiber and so change the ready queue
// themselves; native threads (the resolver) post a key to a lock-free list. Either then wakes the loop, which costs a
// system call only when the loop sleeps.
#ifndef HEDDLE_LOOP_WAKEUP_H
#define HEDDLE_LOOP_WAKEUP_H

#include "heddle.h"

#include <stdatomic.h>

struct wakeup_note {
    struct wakeup_note *next;
    uint64_t key;                           // of the wait that has completed
    void (*drop)(struct wakeup_note *note); // called once the loop has seen the note, or is gone; any thread
};

struct wakeup {
    atomic_int references; // the loop's, and one for every job of a native thread
    int reader;            // an eventfd, or a pipe's ends where there is none
    int writer;
    atomic_bool sleeping;
    _Atomic(struct wakeup_note *) notes;
};

// NULL with errno when there is no descriptor or memory for it. Plain malloc: native threads release it too.
struct wakeup *wakeup_new(void);
struct wakeup *wakeup_retain(struct wakeup *wakeup);
void wakeup_release(struct wakeup *wakeup);

// Any thread, with or without the GVL, also a signal handler. Keeps errno.
void wakeup_signal(struct wakeup *wakeup);

// As wakeup_signal, but writes only when the loop sleeps.
void wakeup_nudge(struct wakeup *wakeup);

// Any thread. The note is kept until wakeup_take hands it out or the last reference is released.
void wakeup_post(struct wakeup *wakeup, struct wakeup_note *note);

// The posted notes, oldest first.
struct wakeup_note *wakeup_take(struct wakeup *wakeup);

// Makes the descriptor quiet again.
void wakeup_drain(struct wakeup *wakeup);

#endif
