// A bounded number of permits. Who finds none waits, in any context (join.h), and is handed one in the order of the
// requests: a permit that is released goes straight to the longest waiter, so that no newcomer can overtake it.
//
// The GVL guards it: between two waits no other thread runs. An interrupt arrives in the wait alone, and what was
// handed over by then goes on to the next waiter. A child of fork has all permits, and none of its parent's waiters.
#ifndef HEDDLE_SYNC_SEMAPHORE_H
#define HEDDLE_SYNC_SEMAPHORE_H

#include "os/deadline.h"
#include "os/fork.h"
#include "references.h"
#include "sync/permit_use.h"

enum { HOLDERS = 10 };

struct semaphore {
    VALUE self;    // the object that holds and marks this record, and that waiters wait for
    VALUE waiters; // Hash of waiters by their numbers, the longest waiting first; or nil
    long waiting;  // … its size
    uint64_t requests;
    long permits, taken; // more may be taken for a while, when the permits were reduced
    // Numbers of tasks that have taken a permit while the process kept records, see loop/records.h; as many as there is
    // room for. A permit that another task gives back leaves its taker's number here until no permit is taken.
    uint64_t holders[HOLDERS];
    bool noted; // any of these
    unsigned forks;
    bool closed;
    VALUE listener; // see semaphore_listen; or nil
    void (*spare)(VALUE listener, int *state);
    struct permit_place place;
};

enum semaphore_answer {
    SEMAPHORE_TAKEN,  // a permit, without a wait
    SEMAPHORE_HANDED, // a permit, from the one that has just released it
    SEMAPHORE_LATE,   // no permit: the time is over
    SEMAPHORE_CLOSED  // no permit
};

// May raise NoMemoryError. semaphore_free must be called before the record is freed, in the main Ractor.
void semaphore_init(struct semaphore *semaphore, VALUE self);
void semaphore_free(struct semaphore *semaphore);

// An Array of the numbers in `holders`.
VALUE semaphore_holders(const struct semaphore *semaphore);

// Called by whoever has taken a permit by semaphore_try, where it is worth a call.
void semaphore_note_holder(struct semaphore *semaphore);

void semaphore_references(void *semaphore, reference_function *each);

// After a fork: no permit is taken. Called by each operation that sees another fork_count().
void semaphore_discard_parents(struct semaphore *semaphore);

// Takes a permit if there is one. Nobody waits while there is one.
static inline bool semaphore_try(struct semaphore *semaphore)
{
    if (semaphore->forks != fork_count()) semaphore_discard_parents(semaphore);
    if (semaphore->closed || semaphore->taken >= semaphore->permits) return false;
    semaphore->taken++;
    return true;
}

// Waits for a permit until `until`. Raises what ends the wait; there is no permit then.
enum semaphore_answer semaphore_acquire(struct semaphore *semaphore, deadline_t until);

// Gives a permit back that was taken in this process. Waking a waiter under another scheduler may raise: that is raised
// here, after the permit has been given back.
void semaphore_release(struct semaphore *semaphore);

// Calls `spare` whenever a permit was given back that no waiter takes. `state` as for protect_next.
void semaphore_listen(struct semaphore *semaphore, VALUE listener, void (*spare)(VALUE listener, int *state));

// Refuses all requests from now on, and those that wait.
void semaphore_close(struct semaphore *semaphore);

static inline size_t semaphore_waiting(const struct semaphore *semaphore)
{
    return (size_t)semaphore->waiting;
}

#endif
