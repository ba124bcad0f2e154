// Which record a blocked fiber is parked on, for `unblock`, which names the fiber alone. Open addressing with linear
// probing; keys are the addresses of fibers, which cannot move while the loop marks (and so pins) them.
#ifndef HEDDLE_LOOP_FIBER_INDEX_H
#define HEDDLE_LOOP_FIBER_INDEX_H

#include "loop/wait.h"

struct fiber_index {
    struct loop_wait **slots;
    uint32_t capacity; // a power of two
    uint32_t size;
};

// Raises NoMemoryError before anything has changed.
void fiber_index_put(struct fiber_index *index, struct loop_wait *wait);
void fiber_index_remove(struct fiber_index *index, struct loop_wait *wait);

// The records of that fiber, one a call; *from is FIBER_INDEX_START at first. The index must not change in between.
#define FIBER_INDEX_START UINT32_MAX
struct loop_wait *fiber_index_next(const struct fiber_index *index, VALUE fiber, uint32_t *from);
void fiber_index_free(struct fiber_index *index);

#endif
