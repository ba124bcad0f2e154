// What a native thread may read of loops and tasks while another thread holds the GVL, perhaps for minutes: copies in
// memory of their own, which is never freed. Kept only with MEASURE_RECORDS.
//
// Threads that hold the GVL of the main Ractor write, one at a time. Readers need no lock, so that none of them ever
// delays a loop: each record has a version, which is odd while the record is written.
#ifndef HEDDLE_LOOP_RECORDS_H
#define HEDDLE_LOOP_RECORDS_H

#include "cancel/owner.h"
#include "os/deadline.h"
#include "os/thread_label.h"

struct loop;
struct loop_record;
struct loop_wait;

enum record_state { RECORD_QUEUED, RECORD_RUNNING, RECORD_WAITING, RECORD_READY };

// A multiple of eight bytes.
struct task_row {
    uint64_t number; // 0: no task
    uint64_t parent;
    uint64_t loop;     // the loop's number
    deadline_t since;  // the beginning of the state
    deadline_t due;    // the earliest deadline at the beginning of the last wait
    int64_t ran;       // nanoseconds, up to the last wait
    int64_t was_ready; // … for which it was ready and did not run yet
    uint64_t turns;
    int32_t descriptor; // of a WAIT_DESCRIPTOR
    int16_t events;
    uint8_t state, kind;
    char name[LABEL];
};

// The same.
struct loop_row {
    uint64_t number;   // 0: no loop
    uint64_t task;     // the number of the owner that runs, or ran last
    deadline_t began;  // of its turn; 0 while no fiber runs
    deadline_t asleep; // the beginning of the poll that sleeps; or 0
    uint64_t switches, ready, tasks;
    int64_t slept;    // nanoseconds
    int64_t thread;   // the kernel's number of the thread, or 0
    char name[LABEL]; // of the thread
    char backend[8];
};

// ---- for threads that hold the GVL. None of these raises.

// `name`: bytes, or NULL. Without memory the owner gets no record.
void record_open(struct wait_owner *owner, const char *name, size_t length);
void record_close(struct wait_owner *owner);

// The owner's memory is freed, in whichever Ractor sweeps.
void record_abandon(struct wait_owner *owner);

// The copy of an owner's record. Returns false without one.
bool record_of(const struct wait_owner *owner, struct task_row *row);

void record_loop_open(struct loop *loop);
void record_loop_close(struct loop *loop);
uint64_t record_loop_number(const struct loop *loop); // or 0

void record_park(struct loop_wait *wait);
void record_ready(struct loop_wait *wait);
void record_resume(struct loop_wait *wait, deadline_t now);
void record_turn(struct loop *loop);
void record_turn_end(struct loop *loop, int64_t run);
void record_sleep(struct loop *loop, deadline_t since);

// ---- for any thread

// The next task's row after the place *from, which begins at 0. Returns false after the last.
bool record_next_task(uint32_t *from, struct task_row *row);

// The next loop's row after *last, which begins as NULL.
bool record_next_loop(const struct loop_record **last, struct loop_row *row);

// How many tasks have no record, because there are too many tasks or there was no memory.
uint64_t records_lost(void);

#endif
