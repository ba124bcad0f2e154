// PostgreSQL's values in their binary form: the simple ones. Plain C, without ruby.h; nothing is allocated. The forms
// are those that each type's send and receive functions have in the server's source (src/backend/utils/adt); beside
// this file are
//   wire/postgresql/values_numeric.h    numeric
//   wire/postgresql/values_time.h       date, time, timetz, timestamp, timestamptz, interval
//   wire/postgresql/values_network.h    inet, cidr, macaddr, macaddr8, uuid
//   wire/postgresql/values_geometry.h   point, line, lseg, box, path, polygon, circle
//   wire/postgresql/values_nested.h     arrays, ranges, multiranges, composites, hstore, tsvector, vector
//
// Reading functions take a value of a DataRow that is not NULL, and return false if it is malformed for its type.
// Writing functions put the value without its length: see pg_value_begin. They exist for types that Ruby has as
// Strings; db/postgresql/copy_values.c and lib/heddle/db/postgresql/binary_form.rb write the other types.
#ifndef HEDDLE_WIRE_POSTGRESQL_VALUES_H
#define HEDDLE_WIRE_POSTGRESQL_VALUES_H

#include "wire/postgresql/buffer.h"

// ---- bool

static inline bool pg_read_bool(struct pg_span value, bool *truth)
{
    if (value.length != 1 || value.at[0] > 1) return false;
    *truth = value.at[0];
    return true;
}

// ---- int2, int4, int8 (money is an int8, in hundredths or the unit of lc_monetary; oid is an unsigned int4)

static inline bool pg_read_int2(struct pg_span value, int16_t *number)
{
    if (value.length != 2) return false;
    *number = (int16_t)pg_load_16(value.at);
    return true;
}

static inline bool pg_read_int4(struct pg_span value, int32_t *number)
{
    if (value.length != 4) return false;
    *number = (int32_t)pg_load_32(value.at);
    return true;
}

static inline bool pg_read_int8(struct pg_span value, int64_t *number)
{
    if (value.length != 8) return false;
    *number = (int64_t)pg_load_64(value.at);
    return true;
}

static inline bool pg_read_oid(struct pg_span value, uint32_t *oid)
{
    if (value.length != 4) return false;
    *oid = pg_load_32(value.at);
    return true;
}

// ---- float4, float8

static inline float pg_load_float(const uint8_t *p)
{
    uint32_t bits = pg_load_32(p);
    float number;
    memcpy(&number, &bits, 4);
    return number;
}

static inline double pg_load_double(const uint8_t *p)
{
    uint64_t bits = pg_load_64(p);
    double number;
    memcpy(&number, &bits, 8);
    return number;
}

static inline bool pg_read_float4(struct pg_span value, float *number)
{
    if (value.length != 4) return false;
    *number = pg_load_float(value.at);
    return true;
}

static inline bool pg_read_float8(struct pg_span value, double *number)
{
    if (value.length != 8) return false;
    *number = pg_load_double(value.at);
    return true;
}

// ---- bit, varbit: the first bit is the highest of the first byte

struct pg_bits {
    uint32_t count;
    const uint8_t *at;
};
bool pg_read_bits(struct pg_span value, struct pg_bits *bits);
// Writes from the characters '0' and '1'.
enum pg_written pg_put_bits(struct pg_buffer *buffer, struct pg_span digits);
static inline bool pg_bit(const struct pg_bits *bits, uint32_t index)
{
    return bits->at[index / 8] >> (7 - index % 8) & 1;
}

// ---- jsonb, ltree, lquery, ltxtquery: a byte with the form's version, which is 1, then text

static inline bool pg_read_versioned(struct pg_span value, struct pg_span *text)
{
    if (value.length < 1 || value.at[0] != 1) return false;
    *text = (struct pg_span){value.at + 1, value.length - 1};
    return true;
}

static inline enum pg_written pg_put_versioned(struct pg_buffer *buffer, struct pg_span text)
{
    if (text.length > PG_MESSAGE_MOST) return PG_TOO_LONG;
    if (!pg_reserve(buffer, 1 + text.length)) return PG_NO_ROOM;
    pg_put_8(buffer, 1);
    return pg_put_bytes(buffer, text.at, text.length);
}

#endif
