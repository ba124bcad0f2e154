#include "loop/fiber_index.h"

static inline uint32_t home(const struct fiber_index *index, VALUE fiber)
{
    // Objects are at least 8 bytes apart; the multiplier spreads the remaining bits (Fibonacci hashing).
    return (uint32_t)(((uint64_t)fiber >> 3) * 0x9E3779B97F4A7C15ULL >> 32) & (index->capacity - 1);
}

static void place(struct fiber_index *index, VALUE *fiber)
{
    uint32_t slot = home(index, *fiber);
    while (index->slots[slot])
        slot = (slot + 1) & (index->capacity - 1);
    index->slots[slot] = fiber;
}

static void grow(struct fiber_index *index)
{
    uint32_t old_capacity = index->capacity;
    uint32_t capacity = old_capacity ? old_capacity * 2 : 64;
    VALUE **old_slots = index->slots;
    index->slots = ZALLOC_N(VALUE *, capacity);
    index->capacity = capacity;
    for (uint32_t i = 0; i < old_capacity; i++) {
        if (old_slots[i]) place(index, old_slots[i]);
    }
    xfree(old_slots);
}

void fiber_index_add(struct fiber_index *index, VALUE *fiber)
{
    if ((index->size + 1) * 2 > index->capacity) grow(index);
    place(index, fiber);
    index->size++;
}

void fiber_index_delete(struct fiber_index *index, VALUE *fiber)
{
    if (!index->capacity) return;
    uint32_t mask = index->capacity - 1;
    uint32_t slot = home(index, *fiber);
    while (index->slots[slot] != fiber) {
        if (!index->slots[slot]) return;
        slot = (slot + 1) & mask;
    }
    index->slots[slot] = NULL;
    index->size--;
    // Close the gap: move up each later entry that could have stood in the gap.
    for (uint32_t probe = (slot + 1) & mask; index->slots[probe]; probe = (probe + 1) & mask) {
        uint32_t wanted = home(index, *index->slots[probe]);
        if (((probe - wanted) & mask) >= ((probe - slot) & mask)) {
            index->slots[slot] = index->slots[probe];
            index->slots[probe] = NULL;
            slot = probe;
        }
    }
}

VALUE *fiber_index_find(const struct fiber_index *index, VALUE fiber, uint32_t *from)
{
    if (!index->capacity) return NULL;
    uint32_t slot = *from == FIBER_INDEX_START ? home(index, fiber) : *from;
    for (; index->slots[slot]; slot = (slot + 1) & (index->capacity - 1)) {
        if (*index->slots[slot] != fiber) continue;
        *from = (slot + 1) & (index->capacity - 1);
        return index->slots[slot];
    }
    return NULL;
}

void fiber_index_free(struct fiber_index *index)
{
    xfree(index->slots);
    index->slots = NULL;
    index->capacity = index->size = 0;
}
