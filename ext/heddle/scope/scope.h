// Scopes: blocks of code with a time limit. Heddle.deadline, Heddle.shield, Timeout.timeout, and the deadline that a
// task inherits. Also blocks with a filter for connects, which nest and are inherited in the same way. Scopes nest in a
// chain; each task and each thread has its own chain.
//
// Opening a scope arms no timer. A task's timers are armed when the task first parks; a thread's are in the helper's
// heap (thread_scope.h). An operation that never waits pays for two clock reads at most.
#ifndef HEDDLE_SCOPE_SCOPE_H
#define HEDDLE_SCOPE_SCOPE_H

#include "loop/owner.h"
#include "loop/timer.h"
#include "scope/deadline_scope.h"

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
    VALUE fiber;         // under a foreign scheduler: the fiber whose waits fail, or nil
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
    bool inherited;                // inherited: it bound the task from its start
    bool bequeathed;               // a task has inherited it; known where `call` is not 0
    bool other_fiber;              // opened in a fiber other than its chain's, see scope_fiber.c
    const struct scope_exit *exit; // SCOPE_TIMEOUT without an exception of the caller's; else NULL
};

// The exception that ends a Timeout.timeout block so that nothing inside can rescue it, see timeout.c.
struct scope_exit {
    VALUE (*exception)(struct scope *scope);
    void (*disarm)(VALUE exception); // the block is being left: the exception must not end another block
};

// Serves the scopes of a chain, and makes waits fail in time. The host is a loop of ours (timers), the helper of plain
// threads, or the hooks of a foreign scheduler. Any member except is_home and running_fiber may be NULL.
struct scope_host {
    // The scope is about to be opened in the chain. May raise before anything has changed.
    void (*arm)(struct scope *scope, struct scope_chain *chain);
    // The scope is open. May raise after closing the scope.
    void (*opened)(struct scope *scope);
    // The end of the open scope was moved; its timer is not armed. May raise NoMemoryError.
    void (*moved)(struct scope *scope);
    // The scope is about to be closed, or its end to be moved.
    void (*disarm)(struct scope *scope);
    // The scope was closed. `uncovers`: scopes that it hid, or that lay in it, may be due now.
    void (*closed)(struct scope *scope, struct scope_chain *chain, bool uncovers);
    // Raises what is pending besides deadlines.
    void (*raise_pending)(struct scope_chain *chain);
    // Returns whether this is the fiber that the chain's code starts with. That fiber either runs or waits for a fiber
    // that it has resumed, so its scopes always bind. May raise an interrupt.
    bool (*is_home)(struct scope_chain *chain, VALUE fiber);
    // The fiber that waits for the chain's code, or the running fiber.
    VALUE (*running_fiber)(const struct scope_chain *chain);
};

struct scope_chain {
    struct scope *innermost;
    const struct scope_host *host;
    struct wait_owner *owner; // the task that runs the code, or NULL
    VALUE thread;             // the plain thread that runs the code, or 0
    VALUE root;               // the thread's root fiber, once that has opened a scope; or 0
    VALUE sent;               // the last deadline's error that the helper raised in the thread, or 0
    VALUE filters;            // inherited: see scope_filters; or 0
    uint32_t other_fibers;    // open scopes of other fibers
    deadline_t passed;        // an instant known to have passed: a task's clock stands still while the task runs
};

struct scope *scope_of(VALUE object);

// Returns a scope that is not open. Raises NoMemoryError.
struct scope *scope_new(enum scope_kind kind, int64_t span);

// Keeps a scope that was left as a spare for scope_new, if nothing refers to it. `uses`: those of the scope when its
// block began.
void scope_hand_back(struct scope *scope, uint32_t uses);

// Opens the scope in the chain; its time ends at `at`. Raises, before anything has changed, what starting the helper
// may raise.
void scope_open(struct scope *scope, struct scope_chain *chain, deadline_t at);

// Does nothing for a scope that is not open.
void scope_close(struct scope *scope);
// Moves the end of an open SCOPE_TIMEOUT whose time is not over yet.
void scope_move(struct scope *scope, deadline_t at);

void scope_close_all(struct scope_chain *chain);

void scope_chain_mark(const struct scope_chain *chain);

// Returns an empty chain, in an object that marks it. Raises NoMemoryError.
struct scope_chain *scope_chain_new(const struct scope_host *host, VALUE *object);

// Sets the function that finds the running fiber's chain; it returns NULL if the thread's chain applies.
void scope_chains_found_by(struct scope_chain *(*find)(void));

// The next retry interval in nanoseconds, for checks whether code waits in a scope whose time is over. `retry`: the
// last interval, 0 before the first check.
uint64_t scope_next_retry(uint64_t retry);

// The chain of the running task or thread. Raises NoMemoryError when it makes a thread's chain.
struct scope_chain *scope_chain_current(void);

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

// scope_filters for the running code.
VALUE scope_filters_in_force(void);

// Binds the running code's chain by these filters, as if they were inherited.
void scope_keep_filters(VALUE filters);

// ---- scope_block.c

// The error that the scope raises: a new DeadlineExceeded, or the one given to Timeout.timeout.
VALUE scope_error(struct scope *scope);

RBIMPL_ATTR_NORETURN()
void scope_raise(struct scope *scope);

// Raises the error with this cause. By itself, Ruby sets the cause to the error that is being rescued.
RBIMPL_ATTR_NORETURN()
void raise_with_cause(VALUE error, VALUE cause);

// Calls the body, closes the scope however the body ends, and converts errors, see Heddle.deadline. A scope without
// failures becomes a spare for scope_new.
VALUE scope_call(struct scope *scope, VALUE (*body)(VALUE), VALUE argument);

// For our own clean-up, which must wait although a deadline has passed. The body must bound its waits itself.
VALUE deadline_shield(VALUE (*body)(VALUE), VALUE argument);

#endif
