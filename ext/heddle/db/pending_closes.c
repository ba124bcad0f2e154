#include "db/pending_closes.h"

#include <ruby.h>
#include <stdlib.h>

enum { FIRST_CAPACITY = 16 };

struct pending_closes {
    uint32_t references;
    bool abandoned;
    uint32_t *ids; // by realloc: see pending_closes_add
    uint32_t count, capacity;
};

struct pending_closes *pending_closes_new(void)
{
    struct pending_closes *pending_closes = ZALLOC(struct pending_closes);
    pending_closes->references = 1;
    return pending_closes;
}

struct pending_closes *pending_closes_share(struct pending_closes *pending_closes)
{
    pending_closes->references++;
    return pending_closes;
}

void pending_closes_release(struct pending_closes *pending_closes)
{
    if (!pending_closes || --pending_closes->references) return;
    free(pending_closes->ids);
    xfree(pending_closes);
}

void pending_closes_abandon(struct pending_closes *pending_closes)
{
    if (pending_closes) pending_closes->abandoned = true;
    pending_closes_release(pending_closes);
}

void pending_closes_add(struct pending_closes *pending_closes, uint32_t id)
{
    if (pending_closes->abandoned) return;
    if (pending_closes->count == pending_closes->capacity) {
        // Not xrealloc: it could start a collection, in the middle of one.
        uint32_t capacity = pending_closes->capacity ? pending_closes->capacity * 2 : FIRST_CAPACITY;
        uint32_t *ids = realloc(pending_closes->ids, capacity * sizeof(*ids));
        if (!ids) return;
        pending_closes->ids = ids;
        pending_closes->capacity = capacity;
    }
    pending_closes->ids[pending_closes->count++] = id;
}

bool pending_closes_take(struct pending_closes *pending_closes, uint32_t *id)
{
    if (!pending_closes->count) return false;
    *id = pending_closes->ids[--pending_closes->count];
    return true;
}

uint32_t pending_closes_count(const struct pending_closes *pending_closes)
{
    return pending_closes->count;
}
