// What a loop measures about its fibers while somebody asks: how long they run, how long they are ready before they
// run, how long they wait. Off, a switch tests one word, `loop->measuring`; the functions here are called only if that
// word is not zero.
//
// A turn is the time for which a fiber runs without parking. measure_resume and measure_start open it, measure_park and
// measure_poll close it; so does the next of these calls for a fiber that has ended instead of parking.
#ifndef HEDDLE_LOOP_MEASURING_H
#define HEDDLE_LOOP_MEASURING_H

#include "loop/wait.h"
#include "os/histogram.h"

// Bits of loop->measuring.
enum {
    MEASURE_LONGEST = 1, // statistics.longest_run, see Scheduler#measure_runs=
    MEASURE_TIMES = 2,   // struct loop_times
    MEASURE_STALLS = 4,
    MEASURE_TRACE = 8,
    MEASURE_RECORDS = 16 // struct task_record, see records.h
};

struct loop_turn {
    deadline_t began; // of the fiber that runs; 0 while none does
    deadline_t now;   // the last reading of the clock; while no fiber runs, good enough for the next one's beginning
    uint64_t number;  // the owner's
};

// Written under the GVL; read by any thread.
struct loop_times {
    struct histogram run;              // turns
    struct histogram lag;              // of fibers that were ready: until they ran
    struct histogram wait[WAIT_KINDS]; // from parking until the fiber was ready, by what it waited for
};

// The bits of the whole process, which loops that start from now on will have. See all_loops.h.
void measuring_want(unsigned bits, bool on);
unsigned measuring_bits(void);

// Allocates loop->times. Raises NoMemoryError.
void measuring_allocate(struct loop *loop);

// Sets or clears the bits in one loop. Raises NoMemoryError before anything has changed.
void measuring_set_one(struct loop *loop, unsigned bits, bool on);

// Has this loop publish its turns (turn_record.h). `thread`: the kernel's number of its thread. False if too many loops
// do.
bool measuring_watch(struct loop *loop, int thread);

// A loop starts, ends (its numbers stay in those of the process), or is freed. Starting may raise NoMemoryError.
void measuring_enter(struct loop *loop);
void measuring_leave(struct loop *loop);
void measuring_free(struct loop *loop);

// In a child of fork: the loop has counted nothing.
void measuring_discard(struct loop *loop);

// What loops of this process had counted when they closed, and adding what one has counted until now.
struct loop_statistics;
void measuring_past(struct loop_statistics *statistics, struct loop_times *times);
void measuring_add(const struct loop *loop, struct loop_statistics *statistics, struct loop_times *times);

// ---- called by the loop. None of these raises or runs Ruby code.

// The running fiber parks. Called again, for the same wait, it does nothing.
void measure_park(struct loop *loop, struct loop_wait *wait);

// The wait has ended: its fiber stands in the ready queue.
void measure_ready(struct loop *loop, struct loop_wait *wait);

// The fiber that parked goes on.
void measure_resume(struct loop *loop, struct loop_wait *wait);

// The same, if an exception or a fiber's end has led there in the middle of a switch.
void measure_thrown(struct loop *loop, struct loop_wait *wait);

// Puts the wait into the loop's trace, as one that lasted until now.
void measure_trace_wait(struct loop *loop, const struct loop_wait *wait, deadline_t now);

// Another owner's code begins on the running fiber, or on one that is about to run for the first time.
void measure_start(struct loop *loop);

// Around a poll; `sleeps`: it may sleep. Between these calls no fiber runs.
void measure_poll(struct loop *loop, deadline_t before, bool sleeps);
void measure_polled(struct loop *loop, deadline_t before, deadline_t after, bool slept);

// Ruby code that belongs to no task, as a trap handler's, or another thread has run in the middle of a switch.
void measure_interrupted(struct loop *loop);

#endif
