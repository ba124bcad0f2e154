#include "cancel/timer.h"

enum { ARITY = 4 };

static inline bool earlier(const struct timer *a, const struct timer *b)
{
    return a->at < b->at || (a->at == b->at && a->order < b->order);
}

static inline void timer_put(struct timer_heap *heap, uint32_t index, struct timer *timer)
{
    heap->nodes[index] = timer;
    timer->index = index + 1;
}

static void sift_up(struct timer_heap *heap, uint32_t index, struct timer *timer)
{
    while (index > 0) {
        uint32_t parent = (index - 1) / ARITY;
        if (!earlier(timer, heap->nodes[parent])) break;
        timer_put(heap, index, heap->nodes[parent]);
        index = parent;
    }
    timer_put(heap, index, timer);
}

static void sift_down(struct timer_heap *heap, uint32_t index, struct timer *timer)
{
    for (;;) {
        uint64_t first = (uint64_t)index * ARITY + 1;
        if (first >= heap->size) break;
        uint64_t last = first + ARITY < heap->size ? first + ARITY : heap->size;
        uint32_t least = (uint32_t)first;
        for (uint32_t child = least + 1; child < last; child++) {
            if (earlier(heap->nodes[child], heap->nodes[least])) least = child;
        }
        if (!earlier(heap->nodes[least], timer)) break;
        timer_put(heap, index, heap->nodes[least]);
        index = least;
    }
    timer_put(heap, index, timer);
}

void timer_add(struct timer_heap *heap, struct timer *timer, deadline_t at)
{
    HEDDLE_ASSERT(timer->index == 0);
    if (heap->size == heap->capacity) {
        uint32_t capacity = heap->capacity ? heap->capacity * 2 : 64;
        REALLOC_N(heap->nodes, struct timer *, capacity);
        heap->capacity = capacity;
    }
    timer->at = at;
    timer->order = heap->order++;
    sift_up(heap, heap->size++, timer);
}

void timer_cancel(struct timer_heap *heap, struct timer *timer)
{
    if (timer->index == 0) return;
    uint32_t index = timer->index - 1;
    timer->index = 0;
    struct timer *last = heap->nodes[--heap->size];
    if (last == timer) return;
    if (index > 0 && earlier(last, heap->nodes[(index - 1) / ARITY])) {
        sift_up(heap, index, last);
    } else {
        sift_down(heap, index, last);
    }
}

uint32_t timer_expire(struct timer_heap *heap, deadline_t now)
{
    uint32_t expired = 0;
    while (heap->size && heap->nodes[0]->at <= now) {
        struct timer *timer = heap->nodes[0];
        timer_cancel(heap, timer);
        timer->expire(timer);
        expired++;
    }
    return expired;
}

void timer_heap_free(struct timer_heap *heap)
{
    xfree(heap->nodes);
    heap->nodes = NULL;
    heap->size = heap->capacity = 0;
}
