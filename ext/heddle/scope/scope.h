// Stretches of code that must be over at some instant: Heddle.deadline, Heddle.shield, Timeout.timeout, and the
// deadline that a task was born under. They nest in a chain, one of each task and of each thread.
//
// A scope arms no timer when it is opened. In a task that is done when it first parks; a thread's are in the heap of
// the helper (thread_scope.h). An operation that never waits pays for two clock reads at most.
#ifndef HEDDLE_SCOPE_SCOPE_H
#define HEDDLE_SCOPE_SCOPE_H

#include "loop/owner.h"
#include "loop/timer.h"
#include "scope/deadline_scope.h"

struct scope_chain;

enum scope_kind {
    SCOPE_DEADLINE,        // every wait fails from its instant on
    SCOPE_SHIELD,          // the same, and hides what lies outside of it
    SCOPE_DEADLINE_SHIELD, // hides deadlines and timeouts that lie outside, but no cancellation
    SCOPE_TIMEOUT          // an exception of the caller's, raised once
};

// Lives in an object of its own, which its chain marks: a fiber that is abandoned inside takes its stack with it, but
// the timer still points here.
struct scope {
    struct timer timer; // of the loop, or of the helper
    VALUE self;
    struct scope_chain *chain; // NULL while it is not open
    struct scope *outer;
    deadline_t at;
    deadline_t earliest; // of this one and those outside of it that it does not hide
    deadline_t limit;    // the same, without timeouts
    int64_t span;        // what was asked for, for the message
    VALUE exception;     // SCOPE_TIMEOUT: class or instance
    VALUE message;       // … and its message, or nil
    VALUE sent;          // went to Thread#raise and may not have arrived yet, or nil
    VALUE fiber;         // under a foreign scheduler: whose waits fail, or nil
    VALUE watcher;       // … and the fiber that sees to it, or nil
    uint64_t retry;      // nanoseconds until the helper looks again whether the thread waits
    uint32_t failures;   // how often it was raised
    uint32_t uses;       // how often it was handed back, see hand_back
    uint8_t kind;
    bool expired;
    bool sending;                  // the helper is in Thread#raise
    bool inherited;                // bound a task from its start
    bool other_fiber;              // opened in another fiber than its chain's, see scope_fiber.c
    const struct scope_exit *exit; // SCOPE_TIMEOUT without an exception of the caller's; else NULL
};

// The exception that ends a block so that nothing inside can rescue it, see timeout.c.
struct scope_exit {
    VALUE (*exception)(struct scope *scope);
    void (*disarm)(VALUE exception); // its scope is being left: it must not end another block
};

// Where the code of a chain runs, and so who sees to it that waits fail in time: a loop of ours (timers), a plain thread
// (the helper), or a fiber of another scheduler (its hooks).
struct scope_host {
    // The scope is about to be opened in the chain. May raise; nothing has changed by then. Or NULL.
    void (*arm)(struct scope *scope, struct scope_chain *chain);
    // The scope is open. May raise, once it has closed the scope. Or NULL.
    void (*opened)(struct scope *scope);
    // The scope is about to be closed. Or NULL.
    void (*disarm)(struct scope *scope);
    // The scope was closed. `uncovers`: scopes that it hid, or that lay in it, may be due now. Or NULL.
    void (*closed)(struct scope *scope, struct scope_chain *chain, bool uncovers);
    // Raises what is pending besides deadlines. Or NULL.
    void (*raise_pending)(struct scope_chain *chain);
    // Whether this is the fiber that the chain's code begins with: while it does not run it waits for a fiber that it has
    // resumed, so that its scopes always bind. May raise an interrupt.
    bool (*is_home)(struct scope_chain *chain, VALUE fiber);
    // The fiber that waits for the chain's code, or the running one.
    VALUE (*running_fiber)(const struct scope_chain *chain);
};

struct scope_chain {
    struct scope *innermost;
    const struct scope_host *host;
    struct wait_owner *owner; // the task that runs the code, or NULL
    VALUE thread;             // the plain thread that runs the code, or 0
    VALUE root;               // the thread's root fiber, once it has opened one; or 0
    VALUE sent;               // the last deadline's error that the helper raised in the thread, or 0
    uint32_t other_fibers;    // how many are open
    deadline_t passed;        // an instant that is known to be over: a task's clock stands still while it runs
};

struct scope *scope_of(VALUE object);

// A new one, not open. Raises NoMemoryError.
struct scope *scope_new(enum scope_kind kind, int64_t span);

// Opens it in the chain; `at` counts. Raises, before anything has changed, what starting the helper may raise.
void scope_open(struct scope *scope, struct scope_chain *chain, deadline_t at);

// Harmless for a scope that is not open.
void scope_close(struct scope *scope);
void scope_close_all(struct scope_chain *chain);

void scope_chain_mark(const struct scope_chain *chain);

// An empty one, in an object that marks it. Raises NoMemoryError.
struct scope_chain *scope_chain_new(const struct scope_host *host, VALUE *object);

// Has `find` asked for the chain of the running fiber: NULL where that is its thread's.
void scope_chains_found_by(struct scope_chain *(*find)(void));

// Nanoseconds until the next look whether somebody waits in a scope that is over, after the last one's: 0 before the
// first.
uint64_t scope_next_retry(uint64_t retry);

// That of the running task or thread. Raises NoMemoryError for a thread's first.
struct scope_chain *scope_chain_current(void);

// Whether those outside of it are none of the running code's business.
bool scope_hides_outer(const struct scope *scope);

// The earliest deadline of the chain, up to its innermost shield.
deadline_t scope_in_force(const struct scope_chain *chain);

// Whether any scope, hidden or not, has an instant still to come.
bool scope_timed(const struct scope_chain *chain);

// Whether a shield is open.
bool scope_shielded(const struct scope_chain *chain);

// Its time is over, by whoever's clock.
void scope_expire(struct scope *scope);

// The outermost scope, inside of any shield, that is to be raised in the next wait; or NULL.
struct scope *scope_due(const struct scope_chain *chain, deadline_t now);

// What it raises: a new DeadlineExceeded, or what Timeout.timeout was told.
VALUE scope_error(struct scope *scope);

RBIMPL_ATTR_NORETURN()
void scope_raise(struct scope *scope);

// Calls the body and closes the scope however it ends, and converts at the border, see Heddle.deadline. One that
// nothing came of has no failures, and is the next to be given out by scope_new.
VALUE scope_call(struct scope *scope, VALUE (*body)(VALUE), VALUE argument);

// For clean-up of our own that must wait although a deadline has passed. The body must bound its waits by itself.
VALUE deadline_shield(VALUE (*body)(VALUE), VALUE argument);

#endif
