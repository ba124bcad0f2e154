/* Timers in a 4-ary heap. A timer lives inside its owner and knows its place, so it can be removed in O(log n). */
#ifndef HEDDLE_SERVER_TIMERS_H
#define HEDDLE_SERVER_TIMERS_H

#include <stddef.h>
#include <stdint.h>

struct timer {
    uint64_t at;  /* CLOCK_MONOTONIC, nanoseconds */
    size_t place; /* index in the heap, or TIMER_IDLE */
    void (*fire)(struct timer *timer);
};

#define TIMER_IDLE SIZE_MAX

struct timers {
    struct timer **heap;
    size_t count, capacity;
};

void timer_init(struct timer *timer, void (*fire)(struct timer *timer));
/* Sets the timer, and moves it if it is already set. Returns 0, or -1 without memory. */
int timers_set(struct timers *timers, struct timer *timer, uint64_t at);
void timers_cancel(struct timers *timers, struct timer *timer);
/* Fires all timers due at `now`. A timer that is set meanwhile for later than `now` waits for the next call. */
void timers_fire(struct timers *timers, uint64_t now);
/* The earliest time, or UINT64_MAX if no timer is set. */
uint64_t timers_next(const struct timers *timers);
void timers_free(struct timers *timers);

#endif
