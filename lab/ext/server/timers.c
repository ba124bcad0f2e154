#include "timers.h"

#include <stdlib.h>

enum { ARITY = 4 };

static void put(struct timers *timers, size_t place, struct timer *timer)
{
    timers->heap[place] = timer;
    timer->place = place;
}

static void sift_up(struct timers *timers, size_t place, struct timer *timer)
{
    while (place > 0) {
        size_t parent = (place - 1) / ARITY;
        if (timers->heap[parent]->at <= timer->at) break;
        put(timers, place, timers->heap[parent]);
        place = parent;
    }
    put(timers, place, timer);
}

static void sift_down(struct timers *timers, size_t place, struct timer *timer)
{
    for (;;) {
        size_t first = place * ARITY + 1, least = first;
        if (first >= timers->count) break;
        for (size_t child = first + 1; child < first + ARITY && child < timers->count; child++) {
            if (timers->heap[child]->at < timers->heap[least]->at) least = child;
        }
        if (timer->at <= timers->heap[least]->at) break;
        put(timers, place, timers->heap[least]);
        place = least;
    }
    put(timers, place, timer);
}

void timer_init(struct timer *timer, void (*fire)(struct timer *timer))
{
    timer->at = 0;
    timer->place = TIMER_IDLE;
    timer->fire = fire;
}

int timers_set(struct timers *timers, struct timer *timer, uint64_t at)
{
    timers_cancel(timers, timer);
    if (timers->count == timers->capacity) {
        size_t capacity = timers->capacity ? timers->capacity * 2 : 1024;
        struct timer **heap = realloc(timers->heap, capacity * sizeof *heap);
        if (!heap) return -1;
        timers->heap = heap;
        timers->capacity = capacity;
    }
    timer->at = at;
    sift_up(timers, timers->count++, timer);
    return 0;
}

void timers_cancel(struct timers *timers, struct timer *timer)
{
    size_t place = timer->place;
    if (place == TIMER_IDLE) return;
    timer->place = TIMER_IDLE;

    struct timer *last = timers->heap[--timers->count];
    if (last == timer) return;
    if (place > 0 && last->at < timers->heap[(place - 1) / ARITY]->at) {
        sift_up(timers, place, last);
    } else {
        sift_down(timers, place, last);
    }
}

void timers_fire(struct timers *timers, uint64_t now)
{
    while (timers->count > 0 && timers->heap[0]->at <= now) {
        struct timer *timer = timers->heap[0];
        timers_cancel(timers, timer);
        timer->fire(timer);
    }
}

uint64_t timers_next(const struct timers *timers)
{
    return timers->count > 0 ? timers->heap[0]->at : UINT64_MAX;
}

void timers_free(struct timers *timers)
{
    free(timers->heap);
    timers->heap = NULL;
    timers->count = timers->capacity = 0;
}
