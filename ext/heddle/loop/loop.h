// The loop of one thread: parked fibers, ready fibers, timers, descriptors. It knows no Ruby class of ours; the
// scheduler binds it.
//
// There is no loop fiber. A fiber that must wait takes the next ready one and transfers to it; with none ready it polls
// itself, and when what it waits for comes first, it goes on without a single switch.
#ifndef HEDDLE_LOOP_LOOP_H
#define HEDDLE_LOOP_LOOP_H

#include "loop/backend.h"
#include "loop/fiber_index.h"
#include "loop/owner.h"
#include "loop/wait.h"
#include "loop/wakeup.h"

struct descriptor {
    struct loop_wait *waits; // all that wait for it
};

struct loop_statistics {
    uint64_t switches;          // transfers to another fiber
    uint64_t polls;             // looks at the kernel, of which …
    uint64_t empty_polls;       // … brought nothing
    uint64_t sleeps;            // … were allowed to wait, without the GVL
    uint64_t waits[WAIT_KINDS]; // fibers parked, by what they waited for
    uint64_t system_calls;      // made to wait and to move bytes
    uint64_t spawned;           // tasks started
    uint64_t reused;            // … of which on a fiber that had run another task before
    uint64_t retired;           // fibers that were not used again
    int64_t longest_run;        // nanoseconds that a fiber ran without parking; only while loop->measuring
};

struct loop {
    VALUE self;   // the Heddle::Scheduler
    VALUE thread; // owns it since its first use; 0 before
    const struct owner_functions *owners;
    struct wait_owner *owner;  // whose fiber runs now
    struct wait_owner *root;   // of what runs outside of any task: the caller of the outermost run, the thread's root
    struct wait_owner *system; // of fibers between two tasks: no interrupt is theirs
    bool interrupt_due; // root's fiber is being transferred to for an interrupt that came while another one polled

    struct loop_wait *ready_head, *ready_tail;
    uint32_t ready_count;
    uint32_t starts;     // of fibers, in a row: none of the others had a turn meanwhile
    bool found;          // the last look at the kernel brought something
    uint32_t since_poll; // fibers dispatched since the kernel was asked last
    uint32_t poll_every; // dispatches after which it is asked again, see switching.c
    deadline_t last_poll;
    uint32_t since_switch;     // operations that a fiber finished without parking, …
    size_t bytes_since_switch; // … and what they moved; see loop_spend

    struct timer_heap timers;
    struct wait_slab waits;
    struct fiber_index blocked; // waits that an unblock ends
    struct fiber_index parked;  // the others, but for idle carriers, and for a task's own fiber that gave its turn away
    struct fiber_index running; // owners that have started and have not ended, by the fiber that each has for itself
    struct descriptor *descriptors;
    bool *drained; // by descriptor: the last read took all there was, the next would find nothing yet
    int descriptor_capacity;

    char *scratch; // see loop_scratch; or NULL

    struct wakeup *wakeup;
    const struct backend *backend;
    void *backend_state; // NULL until the first use
    unsigned fork_count;

    struct loop_wait *idle; // fibers between two tasks, the last first
    size_t idle_count;
    struct loop *next_live; // of all loops that are open
    size_t wakeable;        // fibers that wait for more than another fiber
    size_t early_wakes;     // at least as many as are kept for living fibers, also in a child of fork; see early_wake.h
    VALUE early_wake_name;  // an Integer that no other loop has
    VALUE (*deadlock_error)(struct loop *loop); // what to raise when nothing can happen any more
    bool measuring;                             // of longest_run, which takes a look at the clock a switch
    deadline_t run_began;
    bool closed;
    bool recheck_due;     // it was detached from its thread, see recheck_blocked
    uint64_t recheck_at;  // by statistics.switches: even where others are ready
    bool releasing_mutex; // for Mutex#sleep, which is about to call kernel_sleep
    struct loop_statistics statistics;
};

// Which of the two owners stands for what, see struct loop.
void loop_init(struct loop *loop, VALUE self, const struct owner_functions *owners, struct wait_owner *root,
               struct wait_owner *system);
void loop_mark(struct loop *loop);
size_t loop_memsize(const struct loop *loop); // of what it has allocated
void loop_free(struct loop *loop);

// Makes the calling thread the owner and opens the backend, unless that is done. Raises Heddle::WrongThread,
// Heddle::SchedulerClosed, SystemCallError.
void loop_enter(struct loop *loop);

// Lets go of all descriptors. The loop is of no use afterwards.
void loop_close(struct loop *loop);

// ---- parking. Each of these may run other fibers, and may raise what was sent to the task meanwhile.

// Until loop_unblock names the fiber: true; false when the span (nanoseconds, DEADLINE_NEVER) is over. `blocker`: what
// for, or 0. Only this kind counts as a deadlock when nothing is left that could end it.
bool loop_block(struct loop *loop, VALUE blocker, int64_t span);

// As loop_block, for a fiber that wants to wait. An early wake ends it only where Mutex#sleep called the hook.
bool loop_sleep(struct loop *loop, int64_t span);

// Until the descriptor is ready for one of poll(2)'s `events`. Returns those that are, 0 when the span is over, or
// -errno.
int loop_wait_descriptor(struct loop *loop, int descriptor, short events, int64_t span);

// What becomes of such an errno, in Ruby's words for a thread that waits; `doing` is for the message.
RBIMPL_ATTR_NORETURN()
void loop_raise_wait_error(int error, const char *doing);

// How many places a table by descriptors gets when this one has none: an eighth more, not twice as many, for each page
// that is cleared is memory in use.
static inline int loop_table_capacity(int descriptor)
{
    return descriptor + descriptor / 8 + 64;
}

// Whether a read took all there was, last time: it is better to wait first. A guess; if it is wrong, the wait is short.
bool loop_drained(const struct loop *loop, int descriptor);
void loop_note_drained(struct loop *loop, int descriptor, bool drained);

// Room for LOOP_SCRATCH bytes that are received before a place for them is made, since mostly there are none yet: a
// fiber that waits is not to hold memory for what will come. What is in it is gone once anything else runs. Raises
// NoMemoryError.
enum { LOOP_SCRATCH = 16384 };
char *loop_scratch(struct loop *loop);

// Until one of `count` descriptors is ready; fills in revents as poll(2) does. Returns how many are, 0 when the span is
// over, or -errno.
struct pollfd;
int loop_wait_any(struct loop *loop, struct pollfd *descriptors, size_t count, int64_t span);

// As loop_wait_any, and until a native thread posts a note with the key that `expect` is told, which must not raise.
// With no descriptor at all it is the note that is waited for.
int loop_wait_any_or_note(struct loop *loop, struct pollfd *descriptors, size_t count, int64_t span,
                          void (*expect)(void *argument, uint64_t key), void *argument);

// Gives the turn to the others that are ready and comes back after them.
void loop_yield(struct loop *loop);

// ---- what ends without parking

// For operations of a program's own, which may end without parking. Only waits fail at a deadline: the line that a
// `rescue` logs must get into its file. But a peer that never lets the task wait must not outrun the deadline. So such
// operations call this before they begin: once something is pending for the task, so many of them go through, and the
// next raises it, before it has taken anything. None fails that never waits, as on a regular file. `descriptor`: what
// the operation is for, or -1.
enum { ADMITTED_AT_MOST = 64 };
void loop_admit(struct loop *loop, int descriptor);

// As loop_admit, before a task is started, except that a cancel that is pending is raised at once: it would not reach a task
// that starts after it, for which the run would wait.
void loop_admit_start(struct loop *loop);

// To be called by operations that ended without parking: gives the turn away once in a while, so that a fiber whose
// data is always there does not starve the others. After so many operations, or bytes that they moved: see budget.h.
// Raises nothing: what the operation has taken (bytes, a connection) is not to be lost.
void loop_give_turn(struct loop *loop, size_t bytes);

// Both, for an operation of which nothing is lost.
void loop_use_budget(struct loop *loop);

// For the steps of an exchange, which a deadline may end at each of them: as loop_give_turn, and once the budget is
// spent raises what a wait would raise.
void loop_spend(struct loop *loop, size_t bytes);

// Runs a fiber that was never run, at once: what it is for is begun before its spawner goes on, and is in flight the
// longer. The fiber's block gets the argument. The caller goes on next, see ready_push_starter.
void loop_start(struct loop *loop, VALUE fiber, VALUE argument);

// As loop_start, with an idle fiber, which goes on for `owner`. There must be one.
VALUE loop_continue_idle(struct loop *loop, struct wait_owner *owner); // that fiber

// Parks the calling fiber until loop_continue_idle takes it; loop->owner is its owner then.
void loop_idle(struct loop *loop);

// ---- waking. With the GVL; any thread where it says so.

// Any thread. Ends the loop_block of that fiber; for a fiber that does not wait, its next one, see early_wake.h. Mistaken
// calls are ignored. May raise NoMemoryError.
void loop_unblock(struct loop *loop, VALUE fiber);

// As loop_unblock, for a fiber that looks again whether there is something to do before it waits, with nothing in between
// that could let another thread run.
void loop_unblock_parked(struct loop *loop, VALUE fiber);

// Raise what is pending for the owner in its innermost wait, or at its next one.
void loop_interrupt_owner(struct loop *loop, struct wait_owner *owner);

// The first of all loops that are open; `next_live` is the next one.
struct loop *loops_first(void);

// Any thread. Every wait on this descriptor, in any loop, ends with ECANCELED: somebody closes it.
void loops_descriptor_closing(int descriptor);

// Any thread. When what runs outside of any task on that thread waits in a loop: raises there what is pending for it,
// and answers true.
bool loops_interrupt_root(VALUE thread);

// The fiber that waits in the thread's loop outside of any task, or 0.
VALUE loops_root_fiber(VALUE thread);

// Whether the fiber itself waits here, or is kept for another task.
bool loop_waits(struct loop *loop, VALUE fiber);

// Whether the fiber is kept for another task.
bool loop_keeps_idle(struct loop *loop, VALUE fiber);

// Runs the owner's waiting fiber at once, so that it raises what is pending; comes back as who starts a fiber does. Does
// nothing for one that raises nothing now.
void loop_strike(struct loop *loop, struct wait_owner *owner);

// Yields to the caller's block, which switches to another fiber of this loop; comes back as who starts a fiber does.
void loop_step_aside(struct loop *loop);

// Raise the exception in a fiber of this loop that waits: at once, on the loop's own thread, coming back as who starts a
// fiber does …
bool loop_raise(struct loop *loop, VALUE fiber, VALUE exception);

// … or when the fiber runs next; any thread. Both answer false for a fiber that does not wait here.
bool loop_interrupt_fiber(struct loop *loop, VALUE fiber, VALUE exception);

// Every wait on this descriptor ends with this errno.
void loop_descriptor_gone(struct loop *loop, int descriptor, int error);

// ---- owners

// Whether something is to be raised in it at its next wait.
static inline bool owner_pending(const struct loop *loop, const struct wait_owner *owner)
{
    return (owner->cancel_pending || *owner->innermost) && loop->owners->interrupted(owner);
}

// ---- called by backends, while they collect
void loop_descriptor_ready(struct loop *loop, int descriptor, short revents);
bool loop_wait_ready(struct loop *loop, uint64_t key, short revents, int error); // whether anybody waited for that
void loop_signalled(struct loop *loop);

#endif
