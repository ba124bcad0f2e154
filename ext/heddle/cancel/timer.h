// Timers of one loop: a 4-ary heap of intrusive nodes. A node knows its index, so that cancelling removes it: a million
// cancelled timers cost no memory.
#ifndef HEDDLE_CANCEL_TIMER_H
#define HEDDLE_CANCEL_TIMER_H

#include "os/deadline.h"

struct timer {
    deadline_t at;
    uint64_t order;                      // equal deadlines: first come, first served
    uint32_t index;                      // 1-based index in the heap; 0 if not in the heap
    void (*expire)(struct timer *timer); // called with the timer already out of the heap; must not run Ruby code
};

struct timer_heap {
    struct timer **nodes; // nodes[0] is the earliest
    uint32_t size;
    uint32_t capacity;
    uint64_t order;
};

// Raises NoMemoryError before anything has changed.
void timer_add(struct timer_heap *heap, struct timer *timer, deadline_t at);

// Does nothing for a timer that is not in the heap.
void timer_cancel(struct timer_heap *heap, struct timer *timer);

// Expires all due timers, in order. Returns how many.
uint32_t timer_expire(struct timer_heap *heap, deadline_t now);

static inline deadline_t timer_next(const struct timer_heap *heap)
{
    return heap->size ? heap->nodes[0]->at : DEADLINE_NEVER;
}

void timer_heap_free(struct timer_heap *heap);

#endif
