// What a loop publishes about its turns while stalls are watched, for a native thread that has no GVL: which phase it
// is in, and since when. The records are never freed: that thread may read one of a loop that has just ended.
#ifndef HEDDLE_LOOP_TURN_RECORD_H
#define HEDDLE_LOOP_TURN_RECORD_H

#include "cancel/owner.h"
#include "os/deadline.h"

#include <stdatomic.h>

struct loop;

enum { TURN_RECORDS = 64 }; // loops that are watched at a time

enum turn_phase {
    TURN_LOOP,   // the loop itself: polls, trap handlers, other threads
    TURN_RUNS,   // a fiber, or what the loop does before the next one
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
    deadline_t ended;            // of a turn, after which the loop does something else; or 0
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
    // A sleep has ended, or a loop has begun, while the watcher rested.
    void (*woke)(struct turn_record *record);
};

// Nanoseconds of CPU time that GC has taken so far, in any thread.
extern _Atomic int64_t turn_gc_time;

// Set by the watcher's thread while it sleeps, because all loops do: before it looks a last time whether they do.
extern atomic_bool turn_watcher_rests;

struct turn_record *turn_records(void); // TURN_RECORDS of them

// Loops that start from now on are watched, if a record is free. 0 ends that.
void turn_records_watch(const struct turn_watcher *watcher, int64_t limit);

// Gives the loop a record. `thread`: the kernel's number of the loop's thread. `runs`: it is the calling thread.
// Returns whether the loop has a record.
bool turn_record_attach(struct loop *loop, int thread, bool runs);

// Clears MEASURE_STALLS, too.
void turn_record_detach(struct loop *loop);

// A loop starts, on this thread. Returns whether it is watched: in a simulation, whose clock jumps, it is not.
bool turn_record_enter(struct loop *loop);

// No loop is watched any more; also in a child of fork.
void turn_records_end(void);

extern int64_t turn_limit; // nanoseconds, from which on a turn is reported; INT64_MAX while nobody watches

// ---- called by measuring.c, for a loop that has a record

static inline void turn_record_publish(struct turn_record *record, enum turn_phase phase, deadline_t began)
{
    uint64_t turn = atomic_load_explicit(&record->turn, memory_order_relaxed);
    record->gc_before = atomic_load_explicit(&turn_gc_time, memory_order_relaxed);
    record->ended = 0;
    atomic_store_explicit(&record->began, began, memory_order_relaxed);
    atomic_store_explicit(&record->turn, ((turn >> 2) + 1) << 2 | phase, memory_order_release);
}

// A turn begins.
static inline void turn_record_begin(struct turn_record *record, const struct wait_owner *owner, deadline_t now)
{
    record->task = owner->self;
    record->number = owner->number;
    turn_record_publish(record, TURN_RUNS, now);
}

// The turn took at least turn_limit.
void turn_record_over(struct turn_record *record, deadline_t began, deadline_t now);

void turn_record_poll(struct loop *loop, deadline_t before, bool sleeps);
void turn_record_polled(struct loop *loop, deadline_t after);
void turn_record_interrupted(struct loop *loop, deadline_t now);

#endif
