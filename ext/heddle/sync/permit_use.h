// How many permits the semaphores of this process have, and how long callers have waited for them, by the names of
// their classes: Heddle::DB::Pool, Heddle::Memcached::Server. For Heddle.metrics.
#ifndef HEDDLE_SYNC_PERMIT_USE_H
#define HEDDLE_SYNC_PERMIT_USE_H

#include "os/histogram.h"

struct semaphore;

struct permit_class {
    struct permit_class *next;
    struct histogram wait;
    unsigned forks;               // fork_count() of the process that `wait` belongs to
    long permits, taken, waiting; // during permit_use_each
    char name[];
};

struct permit_place {
    struct semaphore *prev, *next; // of all semaphores
    struct permit_class *of_class; // or NULL before it is in the list
};

// Adds the semaphore to all others, under the name of its object's class. May raise NoMemoryError.
void permit_use_add(struct semaphore *semaphore);

// Takes it out, wherever its record is about to be freed: in the main Ractor (main_ractor.h). May be called by the GC.
void permit_use_remove(struct semaphore *semaphore);

// Notes that somebody has waited for a permit, whether or not he got one.
void permit_use_waited(struct semaphore *semaphore, int64_t span);

// Calls `each` for every class that this process has semaphores of, or had.
void permit_use_each(void (*each)(const struct permit_class *of_class, void *argument), void *argument);

#endif
