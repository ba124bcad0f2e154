// Finds the records of a fiber for callers that know only the fiber: the waits in which the fiber is parked (`unblock`,
// IO#close), and the owner that runs on it. Open addressing with linear probing. The keys are the addresses of fibers,
// which cannot move because the loop's marking pins them.
#ifndef HEDDLE_LOOP_FIBER_INDEX_H
#define HEDDLE_LOOP_FIBER_INDEX_H

#include "cancel/owner.h"
#include "loop/wait.h"

#include <stddef.h>

struct fiber_index {
    VALUE **slots;     // each points to the member of a record that names its fiber
    uint32_t capacity; // a power of two
    uint32_t size;
};

// Raises NoMemoryError before anything has changed.
void fiber_index_add(struct fiber_index *index, VALUE *fiber);
// Does nothing for a record that is not in the index.
void fiber_index_delete(struct fiber_index *index, VALUE *fiber);

// Returns the records of that fiber, one per call; *from is FIBER_INDEX_START at first. The index must not change
// between calls.
#define FIBER_INDEX_START UINT32_MAX
VALUE *fiber_index_find(const struct fiber_index *index, VALUE fiber, uint32_t *from);
void fiber_index_free(struct fiber_index *index);

// ---- of waits

static inline void fiber_index_put(struct fiber_index *index, struct loop_wait *wait)
{
    fiber_index_add(index, &wait->fiber);
}

static inline void fiber_index_remove(struct fiber_index *index, struct loop_wait *wait)
{
    fiber_index_delete(index, &wait->fiber);
}

static inline struct loop_wait *fiber_index_next(const struct fiber_index *index, VALUE fiber, uint32_t *from)
{
    char *found = (char *)fiber_index_find(index, fiber, from);
    return found ? (struct loop_wait *)(found - offsetof(struct loop_wait, fiber)) : NULL;
}

// ---- of owners

static inline struct wait_owner *fiber_index_owner(const struct fiber_index *index, VALUE fiber)
{
    uint32_t from = FIBER_INDEX_START;
    char *found = (char *)fiber_index_find(index, fiber, &from);
    return found ? (struct wait_owner *)(found - offsetof(struct wait_owner, fiber)) : NULL;
}

#endif
