// The loop of one thread: parked fibers, ready fibers, timers, and, in its poller, descriptors. It knows none of our
// Ruby classes; the layer scheduler/ binds it.
//
// There is no loop fiber. A fiber that must wait transfers to the next ready fiber. With none ready, the waiting fiber
// polls the kernel itself; if its own wait ends first, it continues without a single switch.
#ifndef HEDDLE_LOOP_LOOP_H
#define HEDDLE_LOOP_LOOP_H

#include "loop/fiber_index.h"
#include "loop/measuring.h"
#include "loop/poller.h"
#include "loop/records.h"
#include "os/thread_label.h"

// What the loop asks of those who know tasks.
struct owner_functions {
    // The fiber of an owner that ends_with_fiber has ended.
    void (*fiber_ended)(struct wait_owner *owner);

    // The calling thread is about to become the loop's owner. May raise before anything has changed.
    void (*adopt)(struct loop *loop);

    // This process is a child of fork: of all owners only the one that forked still runs.
    void (*discard)(struct loop *loop);
};

enum { LOOP_ENDS = 4 }; // ways in which a task ends, see enum task_status

struct loop_statistics {
    uint64_t switches;          // transfers to another fiber
    uint64_t polls;             // polls of the kernel, of which …
    uint64_t empty_polls;       // … found nothing
    uint64_t sleeps;            // … were allowed to wait, without the GVL
    uint64_t waits[WAIT_KINDS]; // fibers parked, by what they waited for
    uint64_t system_calls;      // made to look before a wait and to move bytes; the poller counts its own
    uint64_t spawned;           // tasks started
    uint64_t reused;            // … of which on a fiber that had run another task before
    uint64_t retired;           // fibers that ended instead of being reused
    uint64_t ended[LOOP_ENDS];  // tasks, by how they ended
    int64_t idle;               // nanoseconds that the loop slept
    int64_t longest_run;        // nanoseconds that a fiber ran without parking; only with MEASURE_LONGEST
};

struct loop {
    struct poller poller;      // first, so that a poller is found to be a loop's
    VALUE self;                // the Heddle::Scheduler, or an object of a class that Scheduler.equip prepared
    VALUE plain_class;         // its class, if Scheduler.equip prepared it: the hooks are Heddle's own; or 0
    VALUE thread;              // owns the loop since its first use; 0 before
    struct thread_label label; // … which has this name
    const struct owner_functions *owners;
    struct wait_owner *owner;  // the owner of the running fiber
    struct wait_owner *root;   // code outside of any task: the caller of the outermost run, the thread's root fiber
    struct wait_owner *system; // fibers between two tasks: they receive no interrupt
    bool threads_due;          // other threads are to have a turn: see loop_yield_to_threads
    bool interrupt_due; // transferring to root's fiber, to raise an interrupt that came while another fiber polled
    // The parked wait whose fiber polls at the moment, and runs trap handlers meanwhile; or NULL. A handler on root's
    // fiber may wait itself, as in a plain thread: loop.c must not take this parked wait for the handler's.
    struct loop_wait *handling;
    struct loop_wait *attending; // the wait of loop_attend, or NULL
    bool attends_polls;          // … which each poll ends

    struct wait_list ready;
    uint32_t ready_count;
    uint32_t starts;             // fibers started in a row, without a turn for the others
    bool found;                  // the last poll found something
    uint32_t since_poll;         // dispatches since the last poll
    uint32_t poll_every;         // dispatches between polls, see switching.c
    deadline_t last_poll;        // the end of the last poll, …
    int64_t last_sleep;          // … and the nanoseconds that it slept
    deadline_t sleeps_since;     // the beginning of the poll that sleeps now; or 0
    int64_t poll_cost;           // nanoseconds that a poll without sleep takes, see switching.c
    int64_t turn_cost;           // … and a turn of a fiber
    double waits, squared_waits; // means of those that ended of late, nanoseconds
    uint64_t switches_at_poll;   // statistics.switches at the last poll
    uint32_t since_switch;       // operations that a fiber finished without parking, …
    size_t bytes_since_switch;   // … and the bytes that they moved; see loop_spend

    struct timer_heap timers;
    struct fiber_index blocked; // waits that loop_unblock ends
    struct fiber_index parked;  // all other waits, except idle worker fibers, and owners' own fibers that yielded
    struct fiber_index running; // owners that have started and not ended, by their own fiber
    struct loop_send *sends;    // the first of those that wait; or NULL
    struct loop_send *last_send;
    char *scratch;      // see loop_scratch; or NULL
    char *long_scratch; // see loop_long_scratch; or NULL

    unsigned fork_count;

    struct loop_wait *idle; // fibers between two tasks, the most recent first
    size_t idle_count;
    struct loop *next_live;    // next in the list of all open loops
    size_t wakeable;           // waiting fibers that something other than a fiber of this loop can wake
    size_t pending_wakeups;    // no fewer than living fibers have, also in a child of fork; see pending_wakeup.h
    size_t deferred;           // no fewer exceptions than fibers have deferred, see loop_raise_deferred
    VALUE pending_wakeup_name; // an Integer, unique to this loop
    // The error to raise when nothing can wake any fiber, or nil; undef if it has let a fiber run.
    VALUE (*deadlock_error)(struct loop *loop);
    int64_t look_after; // nanoseconds from the last look for a deadlock to the next, see switching.c; or 0
    unsigned measuring; // bits of measuring.h; each but 0 costs readings of the clock at each switch
    struct loop_turn turn;
    struct loop_times *times;        // or NULL
    struct trace_ring *trace;        // while a trace is written; or NULL
    struct turn_record *turn_record; // while stalls are watched; or NULL
    struct loop_record *record;      // see records.h; or NULL
    bool closed;
    bool releasing_mutex; // Mutex#sleep is about to call kernel_sleep
    struct loop_statistics statistics;
};

// The roles of the two owners: see struct loop.
void loop_init(struct loop *loop, VALUE self, const struct owner_functions *owners, struct wait_owner *root,
               struct wait_owner *system);
void loop_mark(struct loop *loop);
size_t loop_memsize(const struct loop *loop); // bytes allocated by the loop
void loop_free(struct loop *loop);

// Makes the calling thread the loop's owner and opens the backend, unless that is done already. Raises
// Heddle::WrongThread, Heddle::SchedulerClosed, SystemCallError.
void loop_enter(struct loop *loop);

// Closes all of the loop's descriptors. The loop cannot be used afterwards.
void loop_close(struct loop *loop);

// The first of all open loops; `next_live` links the others.
struct loop *loops_first(void);

// A buffer of LOOP_SCRATCH bytes for receiving before the destination is allocated: mostly no bytes are there yet, and
// a waiting fiber should not hold memory for bytes to come. The contents are lost once anything else runs. Raises
// NoMemoryError.
enum { LOOP_SCRATCH = 16384 };
char *loop_scratch(struct loop *loop);

// The same for callers that ask for much, of which little comes: the pages beyond what has come are never touched.
enum { LOOP_LONG_SCRATCH = 256 << 10 };
char *loop_long_scratch(struct loop *loop);

// When a fiber that starts or resumes another fiber continues.
enum resume_order {
    RESUME_LAST, // after all ready fibers
    RESUME_SOON, // before them, unless they have waited for too long: see ready_push_starter
    RESUME_FIRST // before them
};

#endif
