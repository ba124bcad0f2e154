#include "loop/wait.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

enum { CHUNK = 128 };

const char *const wait_kind_names[WAIT_KINDS] = {
    [WAIT_BLOCK] = "block",   [WAIT_SLEEP] = "sleep", [WAIT_DESCRIPTOR] = "io",
    [WAIT_SELECT] = "select", [WAIT_NATIVE] = "name", [WAIT_YIELD] = "turn"};

static const char *const kind_words[WAIT_KINDS] = {[WAIT_BLOCK] = "another fiber or thread",
                                                   [WAIT_SLEEP] = "the end of a sleep",
                                                   [WAIT_SELECT] = "one of several descriptors",
                                                   [WAIT_NATIVE] = "a name to be resolved"};

const char *wait_events_name(int events)
{
    switch (events & (POLLIN | POLLOUT)) {
    case POLLIN: return "readable";
    case POLLOUT: return "writable";
    case POLLIN | POLLOUT: return "readable or writable";
    default: return "urgent";
    }
}

void wait_words(char words[WAIT_WORDS], enum wait_kind kind, int descriptor, int events, const char *peer)
{
    if (kind != WAIT_DESCRIPTOR) {
        snprintf(words, WAIT_WORDS, "%s", kind_words[kind] ? kind_words[kind] : "its turn");
        return;
    }
    bool urgent = !(events & (POLLIN | POLLOUT));
    snprintf(words, WAIT_WORDS, "descriptor %d%s%s%s to %s%s", descriptor, *peer ? " (" : "", peer, *peer ? ")" : "",
             urgent ? "have urgent data" : "be ", urgent ? "" : wait_events_name(events));
}

static void grow(struct wait_slab *slab)
{
    REALLOC_N(slab->chunks, struct loop_wait *, slab->chunk_count + 1);
    struct loop_wait *chunk = ZALLOC_N(struct loop_wait, CHUNK);
    uint32_t base = slab->chunk_count * CHUNK;
    slab->chunks[slab->chunk_count++] = chunk;
    for (uint32_t i = CHUNK; i-- > 0;) {
        chunk[i].index = base + i;
        chunk[i].generation = 1;
        chunk[i].next = slab->free;
        slab->free = &chunk[i];
    }
}

struct loop_wait *wait_acquire(struct wait_slab *slab, enum wait_kind kind)
{
    if (!slab->free) grow(slab);
    struct loop_wait *wait = slab->free;
    HEDDLE_ASSERT(wait->state == WAIT_FREE && wait->timer.index == 0 && !wait->armed);
    slab->free = wait->next;
    wait->fiber = 0;
    wait->exception = wait->blocker = wait->value = 0;
    wait->owner = NULL;
    wait->prev = wait->next = wait->fd_prev = wait->fd_next = NULL;
    wait->descriptor = -1;
    wait->events = wait->revents = 0;
    wait->kind = kind;
    wait->state = WAIT_PARKED;
    wait->timed_out = wait->completed = wait->armed = wait->indexed = wait->at_once = wait->starter = false;
    wait->measured = false;
    wait->ready = 0;
    wait->error = 0;
    return wait;
}

void wait_release(struct wait_slab *slab, struct loop_wait *wait)
{
    HEDDLE_ASSERT(wait->state != WAIT_FREE && wait->timer.index == 0 && !wait->armed);
    wait->state = WAIT_FREE;
    wait->generation++;
    wait->fiber = 0;
    wait->next = slab->free;
    slab->free = wait;
}

struct loop_wait *wait_find(const struct wait_slab *slab, uint64_t key)
{
    uint32_t index = (uint32_t)key;
    if (index / CHUNK >= slab->chunk_count) return NULL;
    struct loop_wait *wait = &slab->chunks[index / CHUNK][index % CHUNK];
    return wait->generation == (uint32_t)(key >> 32) && wait->state != WAIT_FREE ? wait : NULL;
}

void wait_slab_each(const struct wait_slab *slab, void (*visit)(struct loop_wait *, void *), void *argument)
{
    for (uint32_t c = 0; c < slab->chunk_count; c++) {
        for (uint32_t i = 0; i < CHUNK; i++) {
            if (slab->chunks[c][i].state != WAIT_FREE) visit(&slab->chunks[c][i], argument);
        }
    }
}

size_t wait_slab_size(const struct wait_slab *slab)
{
    return slab->chunk_count * (CHUNK * sizeof(struct loop_wait) + sizeof(struct loop_wait *));
}

void wait_slab_free(struct wait_slab *slab)
{
    for (uint32_t c = 0; c < slab->chunk_count; c++)
        xfree(slab->chunks[c]);
    xfree(slab->chunks);
    memset(slab, 0, sizeof(*slab));
}

void wait_raise_error(int error, const char *doing)
{
    if (error == ECANCELED) rb_raise(rb_eIOError, "stream closed in another thread");
    rb_syserr_fail(error, doing);
}
