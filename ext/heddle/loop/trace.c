#include "loop/trace.h"

#include "loop/loop.h"

#include <stdlib.h>
#include <string.h>

static struct trace *current;
static unsigned forks; // fork_count() of the process that writes it

struct trace *trace_current(void)
{
    return forks == fork_count() ? current : NULL;
}

void trace_set_current(struct trace *trace)
{
    current = trace;
    forks = fork_count();
}

static struct trace_event *event_at(struct trace_ring *ring, uint64_t index)
{
    return &ring->events[index & (TRACE_EVENTS - 1)];
}

void trace_put(struct trace_ring *ring, const struct trace_event *event, const char *name, size_t length)
{
    if (ring->forks != fork_count()) return; // in a child nobody empties it
    uint64_t written = atomic_load_explicit(&ring->written, memory_order_relaxed);
    uint64_t records = 1 + (length + sizeof(*event) - 1) / sizeof(*event);
    if (written + records - ring->room > TRACE_EVENTS) {
        ring->room = atomic_load_explicit(&ring->read, memory_order_acquire);
        if (written + records - ring->room > TRACE_EVENTS) {
            atomic_fetch_add_explicit(&ring->lost, 1, memory_order_relaxed);
            return;
        }
    }
    *event_at(ring, written) = *event;
    for (size_t done = 0; done < length; done += sizeof(*event)) {
        size_t piece = length - done < sizeof(*event) ? length - done : sizeof(*event);
        memcpy(event_at(ring, written + 1 + done / sizeof(*event)), name + done, piece);
    }
    atomic_store_explicit(&ring->written, written + records, memory_order_release);
}

static void introduce(struct trace_ring *ring, const struct wait_owner *owner, const char *name)
{
    size_t length = strlen(name);
    struct trace_event start = {
        .at = deadline_now(), .kind = TRACE_START, .task = owner->number, .second = length, .descriptor = -1};
    trace_put(ring, &start, name, length);
}

// Returns NULL if there are too many.
static struct trace_ring *free_ring(struct trace *trace)
{
    struct trace_ring *ring = atomic_load_explicit(&trace->rings, memory_order_relaxed);
    while (ring && atomic_load_explicit(&ring->state, memory_order_acquire) != RING_FREE)
        ring = ring->next;
    if (ring || trace->ring_count == TRACE_RINGS) return ring;
    ring = aligned_alloc(64, sizeof(*ring));
    if (!ring) rb_memerror();
    memset(ring, 0, offsetof(struct trace_ring, events)); // the pages of the rest are touched as they fill
    trace->ring_count++;
    ring->next = atomic_load_explicit(&trace->rings, memory_order_relaxed);
    atomic_store_explicit(&trace->rings, ring, memory_order_release);
    return ring;
}

void trace_attach(struct loop *loop)
{
    struct trace *trace = trace_current();
    if (!trace || loop->trace) return;
    struct trace_ring *ring = free_ring(trace);
    if (!ring) {
        trace->lost++;
        return;
    }
    ring->forks = fork_count();
    ring->number = ++trace->loops;
    ring->written = ring->read = ring->lost = 0;
    ring->room = 0;
    memcpy(ring->name, loop->label.name, sizeof(ring->name));
    introduce(ring, loop->root, "outside of tasks");
    introduce(ring, loop->system, "between tasks");
    atomic_store_explicit(&ring->state, RING_USED, memory_order_release);
    loop->trace = ring;
}

void trace_leave(struct loop *loop)
{
    struct trace_ring *ring = loop->trace;
    if (!ring) return;
    loop->trace = NULL;
    ring->left = deadline_now();
    atomic_store_explicit(&ring->state, RING_LEFT, memory_order_release);
}
