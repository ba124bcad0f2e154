// The data of cancel scopes: blocks of code with a time limit, a shield or a filter for connects, which nest in a
// chain. Each task and each thread has its own chain, and under another scheduler each fiber. scope/scope.h opens and
// closes scopes; loop/interrupt.h raises in tasks when the time of a scope is over.
#ifndef HEDDLE_CANCEL_CHAIN_H
#define HEDDLE_CANCEL_CHAIN_H

#include "cancel/owner.h"
#include "cancel/timer.h"

struct scope_chain;

enum scope_kind {
    SCOPE_DEADLINE,        // every wait fails from its instant on
    SCOPE_SHIELD,          // like SCOPE_DEADLINE, and hides the scopes outside of it
    SCOPE_DEADLINE_SHIELD, // hides outer deadlines and timeouts, but no cancellation
    SCOPE_TIMEOUT,         // an exception of the caller's, raised once
    SCOPE_FILTER           // no time limit: a filter that is asked before the block's connects
};

// Lives in an object of its own, which its chain marks: a fiber that is abandoned inside the scope loses its stack, but
// the timer still points here.
struct scope {
    struct timer timer; // of the loop, or of the helper
    VALUE self;
    struct scope_chain *chain; // NULL while the scope is not open
    struct scope *outer;
    deadline_t at;
    deadline_t earliest; // of this scope and the outer scopes that it does not hide
    deadline_t limit;    // like `earliest`, without timeouts
    int64_t span;        // the requested time, for the message
    VALUE exception;     // SCOPE_TIMEOUT: class or instance
    VALUE message;       // … and its message, or nil
    VALUE filter;        // SCOPE_FILTER: responds to call; false: connects in the block are not asked for
    VALUE first;         // the first error of a deadline or shield, in the first wait that it ended; or nil
    VALUE sent;          // the error passed to Thread#raise, which may not have arrived yet; or nil
    VALUE fiber;         // under another scheduler: the fiber whose waits fail, or nil
    VALUE watcher;       // … and the fiber that watches the scope, or nil
    uint64_t retry;      // nanoseconds until the helper checks again whether the thread waits
    uint32_t failures;   // how often its error was raised
    uint32_t uses;       // how often it was handed back, see scope_hand_back
    uint64_t call;       // the number of the call whose deadline this is, also where it is inherited; or 0
    int descriptor;      // for which the task waited when the time was over; or -1
    short events;        // … and what for, as poll(2)'s bits
    uint8_t kind;
    bool expired;
    bool sending;                  // the helper is inside Thread#raise
    bool missed;                   // that its thread computes beyond the deadline was reported
    bool inherited;                // inherited: it bound the task from its start
    bool bequeathed;               // a task has inherited it
    bool other_fiber;              // opened in a fiber other than its chain's, see scope_fiber.c
    const struct scope_exit *exit; // SCOPE_TIMEOUT without an exception of the caller's; else NULL
};

// The exception that ends a Timeout.timeout block so that nothing inside can rescue it, see timeout.c.
struct scope_exit {
    VALUE (*exception)(struct scope *scope);
    void (*disarm)(VALUE exception); // the block is being left: the exception must not end another block
};

struct scope_chain {
    struct scope *innermost;
    struct wait_owner *owner; // the task on a loop of ours that runs the code, or NULL
    VALUE thread;             // the plain thread that runs the code, or 0; without either, another scheduler's fiber
    VALUE root;               // the thread's root fiber, once that has opened a scope; or 0
    VALUE sent;               // the last deadline's error that the helper raised in the thread, or 0
    VALUE filters;            // inherited: see scope_filters; or 0
    VALUE waiting;            // the fiber that waits for the chain's code in a loop of ours, or 0;
    unsigned forks;           // … valid in the process with this fork_count()
    uint32_t other_fibers;    // open scopes of other fibers
    deadline_t passed;        // an instant known to have passed: a task's clock stands still while the task runs
};

struct scope *scope_of(VALUE object);

// Returns a scope that is not open. Raises NoMemoryError.
struct scope *scope_new(enum scope_kind kind, int64_t span);

// Keeps a scope that was left as a spare for scope_new, if nothing refers to it. `uses`: those of the scope when its
// block began.
void scope_hand_back(struct scope *scope, uint32_t uses);

// Returns an empty chain, in an object that marks it. Raises NoMemoryError.
struct scope_chain *scope_chain_new(VALUE *object);

void scope_chain_mark(const struct scope_chain *chain);

// Puts the scope into the chain, as its innermost.
void scope_link(struct scope *scope, struct scope_chain *chain);

// Takes the scope out of its chain. Returns whether an outer scope that it hid, or a scope inside it, may be due now.
bool scope_unlink(struct scope *scope);

// Moves the end of a linked scope.
void scope_set_end(struct scope *scope, deadline_t at);

// The next retry interval in nanoseconds, for checks whether code waits in a scope whose time is over. `retry`: the
// last interval, 0 before the first check.
uint64_t scope_next_retry(uint64_t retry);

// Returns whether the scopes outside of this one do not bind the running code.
bool scope_hides_outer(const struct scope *scope);

// The earliest deadline of the chain, up to its innermost shield.
deadline_t scope_in_force(const struct scope_chain *chain);

// Returns whether any scope, hidden or not, has a time limit.
bool scope_timed(const struct scope_chain *chain);

// Returns whether a shield is open.
bool scope_shielded(const struct scope_chain *chain);

// When the last of the open shields ends; 0 without one.
deadline_t scope_shields_end(const struct scope_chain *chain);

// Marks the scope's time as over, by whichever clock.
void scope_expire(struct scope *scope);

// The outermost scope, inside of any shield, that the next wait must raise; or NULL.
struct scope *scope_due(const struct scope_chain *chain, deadline_t now);

// The filters that bind the code of this chain: an Array, innermost first, or 0 if there are none. It ends with false
// if no filter further out is to be asked. May run Ruby methods.
VALUE scope_filters(const struct scope_chain *chain);

// ---- scope_error.c

// The error that the scope raises: a new DeadlineExceeded, or the one given to Timeout.timeout.
VALUE scope_error(struct scope *scope);

RBIMPL_ATTR_NORETURN()
void scope_raise(struct scope *scope);

// Counts an error of a task that ran under this scope's deadline as one of the scope's own.
void scope_failed_in_task(struct scope *scope, VALUE error);

// The error with which the block ends: of the first wait that failed.
VALUE scope_final_error(struct scope *scope);

// The object of the scope that has raised this error, or nil.
VALUE scope_that_raised(VALUE error);

// Raises the error with this cause. By itself, Ruby sets the cause to the error that is being rescued.
RBIMPL_ATTR_NORETURN()
void raise_with_cause(VALUE error, VALUE cause);

#endif
