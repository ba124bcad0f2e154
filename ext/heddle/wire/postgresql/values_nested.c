#include "wire/postgresql/values_nested.h"

// Reads a four-byte count of elements, each of which takes at least this many bytes.
static bool pg_begin(struct pg_span value, size_t least, struct pg_elements *elements)
{
    const uint8_t *p = value.at, *end = value.at + value.length;
    *elements = (struct pg_elements){.end = end};
    if (!pg_take_32(&p, end, &elements->count)) return false;
    elements->p = p;
    return elements->count <= (size_t)(end - p) / least;
}

// ---- arrays

bool pg_array_begin(struct pg_span value, struct pg_array *array)
{
    const uint8_t *p = value.at, *end = value.at + value.length;
    uint32_t dimensions, flags;
    *array = (struct pg_array){.elements = {.end = end}};
    if (!pg_take_32(&p, end, &dimensions) || dimensions > PG_DIMENSIONS_MOST) return false;
    if (!pg_take_32(&p, end, &flags) || flags > 1 || !pg_take_32(&p, end, &array->type)) return false;
    array->dimensions = (uint8_t)dimensions;
    array->nulls = flags;
    uint64_t count = dimensions > 0;
    for (uint32_t i = 0; i < dimensions; i++) {
        uint32_t lower_bound;
        if (!pg_take_32(&p, end, &array->sizes[i]) || !pg_take_32(&p, end, &lower_bound)) return false;
        if (array->sizes[i] > PG_ELEMENTS_MOST) return false;
        count *= array->sizes[i];
        if (count > PG_ELEMENTS_MOST) return false;
        array->lower_bounds[i] = (int32_t)lower_bound;
        if (array->lower_bounds[i] > INT32_MAX - (int32_t)array->sizes[i]) return false;
    }
    array->elements.p = p;
    array->elements.count = (uint32_t)count;
    return count <= (size_t)(end - p) / 4;
}

bool pg_array_next(struct pg_array *array, struct pg_span *element)
{
    struct pg_elements *elements = &array->elements;
    const uint8_t *p = elements->p;
    if (elements->index == elements->count || !pg_take_value(&p, elements->end, element)) return false;
    if (!element->at && !array->nulls) return false;
    elements->p = p;
    elements->index++;
    return true;
}

// ---- ranges

enum {
    RANGE_FLAGS = PG_RANGE_EMPTY | PG_RANGE_LOWER_INCLUSIVE | PG_RANGE_UPPER_INCLUSIVE | PG_RANGE_LOWER_INFINITE |
                  PG_RANGE_UPPER_INFINITE
};

bool pg_read_range(struct pg_span value, struct pg_range *range)
{
    const uint8_t *p = value.at, *end = value.at + value.length;
    *range = (struct pg_range){0};
    if (!pg_take_8(&p, end, &range->flags) || (range->flags & ~RANGE_FLAGS)) return false;
    if (pg_range_has_lower(range->flags) && (!pg_take_value(&p, end, &range->lower) || !range->lower.at)) return false;
    if (pg_range_has_upper(range->flags) && (!pg_take_value(&p, end, &range->upper) || !range->upper.at)) return false;
    return p == end;
}

bool pg_multirange_begin(struct pg_span value, struct pg_elements *ranges)
{
    return pg_begin(value, 5, ranges);
}

bool pg_multirange_next(struct pg_elements *ranges, struct pg_range *range)
{
    const uint8_t *p = ranges->p;
    struct pg_span value;
    if (ranges->index == ranges->count || !pg_take_value(&p, ranges->end, &value) || !value.at) return false;
    if (!pg_read_range(value, range)) return false;
    ranges->p = p;
    ranges->index++;
    return true;
}

// ---- composites

bool pg_composite_begin(struct pg_span value, struct pg_elements *fields)
{
    return pg_begin(value, 8, fields);
}

bool pg_composite_next(struct pg_elements *fields, uint32_t *type, struct pg_span *field)
{
    const uint8_t *p = fields->p;
    if (fields->index == fields->count || !pg_take_32(&p, fields->end, type) || !pg_take_value(&p, fields->end, field))
        return false;
    fields->p = p;
    fields->index++;
    return true;
}

// ---- hstore

bool pg_hstore_begin(struct pg_span value, struct pg_elements *pairs)
{
    return pg_begin(value, 8, pairs);
}

bool pg_hstore_next(struct pg_elements *pairs, struct pg_span *key, struct pg_span *value)
{
    const uint8_t *p = pairs->p;
    if (pairs->index == pairs->count || !pg_take_value(&p, pairs->end, key) || !key->at) return false;
    if (!pg_take_value(&p, pairs->end, value)) return false;
    pairs->p = p;
    pairs->index++;
    return true;
}

// ---- tsvector

bool pg_tsvector_begin(struct pg_span value, struct pg_elements *lexemes)
{
    return pg_begin(value, 3, lexemes);
}

bool pg_tsvector_next(struct pg_elements *lexemes, struct pg_lexeme *lexeme)
{
    const uint8_t *p = lexemes->p;
    struct pg_span positions;
    if (lexemes->index == lexemes->count || !pg_take_string(&p, lexemes->end, &lexeme->text)) return false;
    if (!pg_take_16(&p, lexemes->end, &lexeme->count)) return false;
    if (!pg_take_bytes(&p, lexemes->end, 2 * (size_t)lexeme->count, &positions)) return false;
    lexeme->positions = positions.at;
    lexemes->p = p;
    lexemes->index++;
    return true;
}

// ---- vector

bool pg_read_vector(struct pg_span value, struct pg_vector *vector)
{
    const uint8_t *p = value.at, *end = value.at + value.length;
    uint16_t unused;
    if (!pg_take_16(&p, end, &vector->count) || !pg_take_16(&p, end, &unused) || unused != 0) return false;
    vector->at = p;
    return (size_t)(end - p) == 4 * (size_t)vector->count;
}
