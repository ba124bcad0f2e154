// The loop of one thread: parked fibers, ready fibers, timers, and, in its poller, descriptors. It knows none of our
// Ruby classes; the room scheduler/ binds it.
//
// There is no loop fiber. A fiber that must wait transfers to the next ready fiber. With none ready, the waiting fiber
// polls the kernel itself; if its own wait ends first, it continues without a single switch.
#ifndef HEDDLE_LOOP_LOOP_H
#define HEDDLE_LOOP_LOOP_H

#include "loop/fiber_index.h"
#include "loop/poller.h"

// What the loop asks of those who know tasks.
struct owner_functions {
    // The fiber of an owner that ends_with_fiber has ended.
    void (*fiber_ended)(struct wait_owner *owner);

    // The calling thread is about to become the loop's owner. May raise before anything has changed.
    void (*adopt)(struct loop *loop);

    // This process is a child of fork: of all owners only the one that forked still runs.
    void (*abandon)(struct loop *loop);
};

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
    int64_t idle;               // nanoseconds that the loop slept
    int64_t longest_run;        // nanoseconds that a fiber ran without parking; only while loop->measuring
};

struct loop {
    struct poller poller; // first, so that a poller is found to be a loop's
    VALUE self;           // the Heddle::Scheduler, or an object of a class that Scheduler.equip prepared
    VALUE plain_class;    // its class, if Scheduler.equip prepared it: the hooks are Heddle's own; or 0
    VALUE thread;         // owns the loop since its first use; 0 before
    const struct owner_functions *owners;
    struct wait_owner *owner;  // the owner of the running fiber
    struct wait_owner *root;   // code outside of any task: the caller of the outermost run, the thread's root fiber
    struct wait_owner *system; // fibers between two tasks: they receive no interrupt
    bool interrupt_due; // transferring to root's fiber, to raise an interrupt that came while another fiber polled
    // The parked wait whose fiber polls and runs trap handlers at the moment, or NULL. A handler on root's fiber that
    // waits does so as in a plain thread: loop.c must not take the parked wait for the handler's.
    struct loop_wait *handling;
    struct loop_wait *attending; // the wait of loop_attend, or NULL
    bool attends_polls;          // … which each poll ends

    struct wait_list ready;
    uint32_t ready_count;
    uint32_t starts;     // fibers started in a row, without a turn for the others
    bool found;          // the last poll found something
    uint32_t since_poll; // dispatches since the last poll
    uint32_t poll_every; // dispatches between polls, see switching.c
    deadline_t last_poll;        // the end of the last poll, …
    int64_t last_sleep;          // … and the nanoseconds that it slept
    int64_t poll_cost;           // nanoseconds that a poll without sleep takes, see switching.c
    uint32_t since_switch;     // operations that a fiber finished without parking, …
    size_t bytes_since_switch; // … and the bytes that they moved; see loop_spend

    struct timer_heap timers;
    struct fiber_index blocked; // waits that loop_unblock ends
    struct fiber_index parked;  // all other waits, except idle carriers, and owners' own fibers that yielded
    struct fiber_index running; // owners that have started and not ended, by their own fiber
    struct loop_send *sends;    // the first of those that wait; or NULL
    struct loop_send *last_send;
    char *scratch;      // see loop_scratch; or NULL
    char *long_scratch; // see loop_long_scratch; or NULL

    unsigned fork_count;

    struct loop_wait *idle; // fibers between two tasks, the most recent first
    size_t idle_count;
    struct loop *next_live; // next in the list of all open loops
    size_t wakeable;        // waiting fibers that something other than a fiber of this loop can wake
    size_t early_wakes;     // at least as many as living fibers have, also in a child of fork; see early_wake.h
    size_t deferred;        // at least as many exceptions as fibers have deferred, see loop_raise_deferred
    VALUE early_wake_name;  // an Integer, unique to this loop
    // The error to raise when nothing can wake any fiber, or nil; undef if it has let a fiber run.
    VALUE (*deadlock_error)(struct loop *loop);
    bool measuring; // longest_run, which costs reading the clock at each switch
    deadline_t run_began;
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

// ---- parking. Each of these may run other fibers, and may raise what is pending for the task.

// Waits until loop_unblock names the fiber. Returns false when the span (nanoseconds, DEADLINE_NEVER) is over.
// `blocker`: the object waited for, or 0. Only this kind of wait counts as a deadlock when nothing is left that could
// end it.
bool loop_block(struct loop *loop, VALUE blocker, int64_t span);

// Like loop_block, for a fiber that sleeps. An early wake ends the sleep only if Mutex#sleep called the hook.
bool loop_sleep(struct loop *loop, int64_t span);

// Waits until the descriptor is ready for one of poll(2)'s `events`. Returns the ready events, 0 when the span is over,
// or -errno.
int loop_wait_descriptor(struct loop *loop, int descriptor, short events, int64_t span);

// A hang-up or an error ends any wait. Asks the kernel again which of the `asked` events there are, as Ruby reports
// them without a scheduler: urgent data (POLLPRI) is neither. Perhaps none.
short loop_urgent(struct loop *loop, int descriptor, short asked);

// A buffer of LOOP_SCRATCH bytes for receiving before the destination is allocated: mostly no bytes are there yet, and
// a waiting fiber should not hold memory for bytes to come. The contents are lost once anything else runs. Raises
// NoMemoryError.
enum { LOOP_SCRATCH = 16384 };
char *loop_scratch(struct loop *loop);

// The same for callers that ask for much, of which little comes: the pages beyond what has come are never touched.
enum { LOOP_LONG_SCRATCH = 256 << 10 };
char *loop_long_scratch(struct loop *loop);

// Waits until one of `count` descriptors is ready; fills in revents as poll(2) does. Returns how many are ready, 0 when
// the span is over, or -errno.
struct pollfd;
int loop_wait_any(struct loop *loop, struct pollfd *descriptors, size_t count, int64_t span);

// Like loop_wait_any, but a note that a native thread posts also ends the wait. `expect` gets the note's key, and must
// not raise. Without descriptors only the note ends the wait.
int loop_wait_any_or_note(struct loop *loop, struct pollfd *descriptors, size_t count, int64_t span,
                          void (*expect)(void *argument, uint64_t key), void *argument);

// Yields to the other ready fibers and returns after their turns.
void loop_yield(struct loop *loop);

// ---- operations that end without parking

// For a program's own operations that may end without parking. Only waits fail at a deadline, because a line that a
// `rescue` logs must still get into its file. But a peer that never lets the task wait must not outrun the deadline. So
// such operations call this before they begin: once something is pending for the task, ADMITTED_AT_MOST operations go
// through, and the next one raises before it has taken anything. Operations that never wait, as on a regular file,
// never fail. `descriptor`: the operation's, or -1.
enum { ADMITTED_AT_MOST = 64 };
void loop_admit(struct loop *loop, int descriptor);

// Like loop_admit, before a task is started, but raises a pending cancellation at once: the cancellation would not
// reach a task that starts after it, and the run would wait for that task.
void loop_admit_start(struct loop *loop);

// Called by operations that ended without parking: yields once the budget (budget.h) of operations and bytes is spent,
// so that a fiber whose data is always there does not starve the others. Raises nothing: what the operation has taken
// (bytes, a connection) must not be lost.
void loop_give_turn(struct loop *loop, size_t bytes);

// The same for an operation on a descriptor that may be a file's.
void loop_give_turn_after(struct loop *loop, int descriptor, size_t bytes);

// Like loop_admit and loop_give_turn together, for an operation that loses nothing if this raises.
void loop_use_budget(struct loop *loop);

// ---- sending.c: bytes that leave after the other ready fibers have worked, so that the bytes of all of them leave one
// right after the other: the peer's process is woken once, and the processor's caches change between Ruby's work and
// the kernel's once, instead of for each fiber.

// On the stack of the fiber that sends. At most one for a descriptor.
struct loop_send {
    struct loop_send *next;
    int descriptor;
    bool done;
    void (*send)(struct loop_send *send); // sends without a wait; must neither raise nor run other fibers
};

// Returns whether the running fiber had better send later: other fibers are ready, their work between two waits takes
// about as long as what is gained, and the fiber's owner was the last to read from the socket, so that the bytes are an
// answer. Other bytes leave at once: the code that has just started the fiber, say, may look for them, or shut the
// socket down.
bool loop_gains_by_sending_later(const struct loop *loop, int descriptor);

// Lets the other ready fibers run. The bytes have been sent when this returns, and also when it raises.
void loop_send_later(struct loop *loop, struct loop_send *send);

// To be called before other bytes follow: sends what waits for this descriptor.
void loop_send_waiting(struct loop *loop, int descriptor);

// Any thread. The same in all loops, before the descriptor is closed.
void loops_send_waiting(int descriptor);

// For the steps of an exchange, each of which a deadline may end: like loop_give_turn, but raises what a wait would
// raise once the budget is spent.
void loop_spend(struct loop *loop, size_t bytes);

// For code outside of any task that runs the loop until its own condition holds. Waits until `loop_unblock` names the
// fiber, the span is over, or an interrupt has come, which is left pending if the caller masks it; with `polls`, also
// until a poll of the kernel has made a fiber ready, or did not wait.
void loop_attend(struct loop *loop, int64_t span, bool polls);

// Waits until loop_resume names the fiber, and returns the value given there; or until loop_unblock does: nil.
VALUE loop_await_resume(struct loop *loop);

// When a fiber continues that lets another fiber run at once.
enum callers_turn {
    TURN_LAST, // after all ready fibers
    TURN_SOON, // before them, unless they are due: see ready_push_starter
    TURN_FIRST // before them
};

// Switches at once to a fiber that waits in this loop, and ends its wait. False for a fiber that does not wait here.
bool loop_resume(struct loop *loop, VALUE fiber, VALUE value, enum callers_turn turn);

// Runs a new fiber at once, so that its request is in flight before the starting fiber continues. The new fiber's block
// gets the argument, which Ruby keeps alive as long as the fiber, and finds `owner` in loop->owner.
void loop_start(struct loop *loop, struct wait_owner *owner, VALUE fiber, VALUE argument, enum callers_turn turn);

// Like loop_start, with an idle carrier, which continues for `owner`. loop->idle must not be NULL. Returns the carrier.
VALUE loop_continue_idle(struct loop *loop, struct wait_owner *owner, enum callers_turn turn);

// Lets an idle carrier continue for `owner` behind all ready fibers. loop->idle must not be NULL. Does not raise.
void loop_queue_idle(struct loop *loop, struct wait_owner *owner);

// Parks the calling fiber until loop_continue_idle or loop_queue_idle takes it; then loop->owner is the new owner.
void loop_idle(struct loop *loop);

// ---- waking. With the GVL; from any thread only where the comment says so.

// Any thread. Ends that fiber's loop_block; for a fiber that does not wait, ends its next one, see early_wake.h.
// Ignores mistaken calls. May raise NoMemoryError.
void loop_unblock(struct loop *loop, VALUE fiber);

// Like loop_unblock, for a fiber that checks for work right before it waits: nothing between the check and the wait may
// let another thread run.
void loop_unblock_parked(struct loop *loop, VALUE fiber);

// Wakes the owner's innermost wait, in which the owner's fiber raises what is pending (owner_raise_pending) as
// soon as it runs. An owner that does not wait raises at its next wait.
void loop_interrupt_owner(struct loop *loop, struct wait_owner *owner);

// The first of all open loops; `next_live` links the others.
struct loop *loops_first(void);

// Any thread. If code outside of any task waits in that thread's loop: raises there what is pending for it, and returns
// true.
bool loops_interrupt_root(VALUE thread);

// Returns whether the fiber itself waits in this loop, or is an idle carrier.
bool loop_waits(struct loop *loop, VALUE fiber);

// Returns whether the fiber is an idle carrier.
bool loop_keeps_idle(struct loop *loop, VALUE fiber);

// Runs the owner's waiting fiber at once, so that it raises what is pending. The caller's turn comes soon. Does nothing
// if the fiber would not raise now.
void loop_interrupt_owner_now(struct loop *loop, struct wait_owner *owner);

// Yields to the caller's block, which switches to another fiber of this loop. The caller's turn comes soon.
void loop_step_aside(struct loop *loop);

// Raises the exception in a waiting fiber of this loop: on the loop's own thread, at once. False for a fiber that does
// not wait here.
bool loop_raise(struct loop *loop, VALUE fiber, VALUE exception, enum callers_turn turn);

// Like loop_raise, from any thread: raises when the fiber runs next.
bool loop_interrupt_fiber(struct loop *loop, VALUE fiber, VALUE exception);

// Raises the exception in the wait of the code outside of any task, unless one is to be raised there already; whatever
// that wait was for. That code runs before all ready fibers.
void loop_raise_at_root(struct loop *loop, VALUE exception);

// Kills a fiber that waits for a Mutex, as Fiber#kill does. If the fiber relocks the Mutex, it is killed afterwards.
// False for any other fiber.
bool loop_kill(struct loop *loop, VALUE fiber);

// In place of an exception: Fiber#kill.
#define LOOP_KILL Qtrue

// A fiber that relocks a Mutex defers what these three functions raise. Raises the first such exception of the running
// fiber, or forgets all of them.
void loop_raise_deferred(struct loop *loop);
void loop_forget_deferred(struct loop *loop);

#endif
