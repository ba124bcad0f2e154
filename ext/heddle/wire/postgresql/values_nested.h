// Values that contain values, in their binary form: arrays, ranges, multiranges, composites, hstore, tsvector, and
// pgvector's vector. A count of elements is trusted only as far as bytes for them have arrived.
//
// All are read like arrays:
//
//   struct pg_array array;
//   struct pg_span element; // NULL without `at`
//   if (!pg_array_begin(value, &array)) invalid
//   while (pg_array_next(&array, &element)) use element
//   if (!pg_array_complete(&array)) invalid
#ifndef HEDDLE_WIRE_POSTGRESQL_VALUES_NESTED_H
#define HEDDLE_WIRE_POSTGRESQL_VALUES_NESTED_H

#include "wire/postgresql/values.h"

// The common part: the elements that have not been read yet.
struct pg_elements {
    const uint8_t *p, *end;
    uint32_t count, index;
};
static inline bool pg_elements_complete(const struct pg_elements *elements)
{
    return elements->index == elements->count && elements->p == elements->end;
}

// ---- arrays (arrayfuncs.c of the server)

enum { PG_DIMENSIONS_MOST = 6, PG_ELEMENTS_MOST = PG_MESSAGE_MOST / 8 };

struct pg_array {
    struct pg_elements elements;
    uint32_t type;      // OID of the elements
    uint8_t dimensions; // 0: the array is empty
    bool nulls;         // some elements may be NULL
    uint32_t sizes[PG_DIMENSIONS_MOST];
    int32_t lower_bounds[PG_DIMENSIONS_MOST];
};
bool pg_array_begin(struct pg_span value, struct pg_array *array);
// The last dimension's index changes fastest.
bool pg_array_next(struct pg_array *array, struct pg_span *element);
static inline bool pg_array_complete(const struct pg_array *array)
{
    return pg_elements_complete(&array->elements);
}

// ---- ranges (rangetypes.c)

enum {
    PG_RANGE_EMPTY = 0x01,
    PG_RANGE_LOWER_INCLUSIVE = 0x02,
    PG_RANGE_UPPER_INCLUSIVE = 0x04,
    PG_RANGE_LOWER_INFINITE = 0x08,
    PG_RANGE_UPPER_INFINITE = 0x10
};
struct pg_range {
    uint8_t flags;
    struct pg_span lower, upper; // without `at` if the range has no such bound
};
bool pg_read_range(struct pg_span value, struct pg_range *range);
static inline bool pg_range_has_lower(uint8_t flags)
{
    return !(flags & (PG_RANGE_EMPTY | PG_RANGE_LOWER_INFINITE));
}
static inline bool pg_range_has_upper(uint8_t flags)
{
    return !(flags & (PG_RANGE_EMPTY | PG_RANGE_UPPER_INFINITE));
}

// ---- multiranges (multirangetypes.c): ranges

bool pg_multirange_begin(struct pg_span value, struct pg_elements *ranges);
bool pg_multirange_next(struct pg_elements *ranges, struct pg_range *range);
// ---- composites and records (rowtypes.c): each field with the OID of its type

bool pg_composite_begin(struct pg_span value, struct pg_elements *fields);
bool pg_composite_next(struct pg_elements *fields, uint32_t *type, struct pg_span *field);
// ---- hstore (contrib/hstore): pairs; a value may be NULL, a key may not

bool pg_hstore_begin(struct pg_span value, struct pg_elements *pairs);
bool pg_hstore_next(struct pg_elements *pairs, struct pg_span *key, struct pg_span *value);
// ---- tsvector (tsvector.c): lexemes with their positions

struct pg_lexeme {
    struct pg_span text;
    uint16_t count; // of positions
    const uint8_t *positions;
};
bool pg_tsvector_begin(struct pg_span value, struct pg_elements *lexemes);
bool pg_tsvector_next(struct pg_elements *lexemes, struct pg_lexeme *lexeme);
// A position from 1 to 16383, and its weight, 'A' to 'D'.
static inline uint16_t pg_lexeme_position(const struct pg_lexeme *lexeme, uint16_t index, char *weight)
{
    uint16_t position = pg_load_16(lexeme->positions + 2 * (size_t)index);
    *weight = (char)('D' - (position >> 14));
    return position & 0x3fff;
}

// ---- vector (pgvector, vector.c): single-precision numbers

struct pg_vector {
    uint16_t count;
    const uint8_t *at;
};
bool pg_read_vector(struct pg_span value, struct pg_vector *vector);
static inline float pg_vector_number(const struct pg_vector *vector, uint16_t index)
{
    return pg_load_float(vector->at + 4 * (size_t)index);
}

#endif
