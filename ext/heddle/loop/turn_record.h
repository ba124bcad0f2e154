// What a loop publishes about its turns while stalls are watched, for a native thread that has no GVL: which phase it
// is in, and since when. The records are never freed: that thread may read one of a loop that has just ended.
#ifndef HEDDLE_LOOP_TURN_RECORD_H
#define HEDDLE_LOOP_TURN_RECORD_H

#include "os/deadline.h"

#include <stdatomic.h>

struct loop;
struct wait_owner;

enum { TURN_RECORDS = 64 }; // loops that are watched at a time

enum turn_phase {
    TURN_LOOP,   // the loop itself: polls, trap handlers, other threads
    TURN_RUNS,   // a fiber
    TURN_SLEEPS, // a poll without the GVL
    TURN_PHASES
};

struct turn_record {
    _Atomic uint64_t turn;       // turn_phase in the lowest two bits; the rest changes with each phase
    _Atomic(deadline_t) began;   // of the phase
    _Atomic(deadline_t) woken;   // when the system call of a TURN_SLEEPS ended: since then it waits for the GVL; or 0
    _Atomic int thread;          // the kernel's number of the loop's thread, or 0
    _Atomic(struct loop *) loop; // NULL: not in use. Only its own thread, with the GVL, may follow the pointer
    VALUE task;                  // of the turn, or 0 for code outside of any task
    uint64_t number;             // … and the task's number
    int64_t gc_before;           // turn_gc_time when the phase began
    uint32_t ready_before;       // ready fibers before the poll
};

// What the loop asks of those who watch. Both are called on the loop's thread, with the GVL, and neither raises, nor
// runs Ruby code, nor lets another thread run.
struct turn_watcher {
    // The loop went on after a phase that took at least the limit, by a coarse clock. `since`: when the phase began, or
    // when its system call ended, or when a timer was due.
    void (*over)(struct turn_record *record, enum turn_phase phase, deadline_t since, deadline_t now);
    // The first poll after a turn that was over has found something.
    void (*polled)(struct turn_record *record, uint32_t found);
    // A sleep has ended while the watcher rested.
    void (*woke)(struct turn_record *record, deadline_t now);
};

// Nanoseconds that GC has taken so far, in any thread.
extern _Atomic int64_t turn_gc_time;

// Set by the watcher's thread while it sleeps, because all loops do.
extern atomic_bool turn_watcher_rests;

struct turn_record *turn_records(void); // TURN_RECORDS of them

// Loops that start from now on are watched, if a record is free. 0 ends that.
void turn_records_watch(const struct turn_watcher *watcher, int64_t limit);

// Gives the loop a record. `thread`: the kernel's number of the loop's thread. `runs`: it is the calling thread. Returns
// whether the loop has a record.
bool turn_record_attach(struct loop *loop, int thread, bool runs);

// Clears MEASURE_STALLS, too.
void turn_record_detach(struct loop *loop);

// A loop starts, on this thread. Returns whether it is watched.
bool turn_record_enter(struct loop *loop);

// No loop is watched any more; also in a child of fork.
void turn_records_end(void);

// ---- called by measuring.c, for a loop that has a record

void turn_record_begin(struct loop *loop, const struct wait_owner *owner, deadline_t now);
void turn_record_end(struct loop *loop, deadline_t began, deadline_t now, bool counts);
void turn_record_poll(struct loop *loop, deadline_t before, bool sleeps);
void turn_record_polled(struct loop *loop, deadline_t after);
void turn_record_interrupted(struct loop *loop, deadline_t now);

#endif
