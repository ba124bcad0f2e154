// PostgreSQL's values in their binary form: the simple ones, and the OIDs of the types. Plain C, without ruby.h;
// nothing is allocated. The forms are those that each type's send and receive functions have in the server's source
// (src/backend/utils/adt); beside this file are
//   wire_postgresql_values_numeric.h    numeric
//   wire_postgresql_values_time.h       date, time, timetz, timestamp, timestamptz, interval
//   wire_postgresql_values_network.h    inet, cidr, macaddr, macaddr8, uuid
//   wire_postgresql_values_geometry.h   point, line, lseg, box, path, polygon, circle
//   wire_postgresql_values_nested.h     arrays, ranges, multiranges, composites, hstore, tsvector, vector
//
// Reading functions take a value of a DataRow that is not NULL, and return false if it is malformed for its type.
// Writing functions put the value without its length: see pg_value_begin.
#ifndef HEDDLE_WIRE_WIRE_POSTGRESQL_VALUES_H
#define HEDDLE_WIRE_WIRE_POSTGRESQL_VALUES_H

#include "wire/wire_postgresql_buffer.h"

// Types of pg_type.dat, whose numbers never change. Types of extensions and of users have other numbers in each
// database.
enum pg_oid {
    PG_OID_BOOL = 16,
    PG_OID_BYTEA = 17,
    PG_OID_CHAR = 18,
    PG_OID_NAME = 19,
    PG_OID_INT8 = 20,
    PG_OID_INT2 = 21,
    PG_OID_INT4 = 23,
    PG_OID_TEXT = 25,
    PG_OID_OID = 26,
    PG_OID_JSON = 114,
    PG_OID_XML = 142,
    PG_OID_POINT = 600,
    PG_OID_LSEG = 601,
    PG_OID_PATH = 602,
    PG_OID_BOX = 603,
    PG_OID_POLYGON = 604,
    PG_OID_LINE = 628,
    PG_OID_CIDR = 650,
    PG_OID_FLOAT4 = 700,
    PG_OID_FLOAT8 = 701,
    PG_OID_UNKNOWN = 705,
    PG_OID_CIRCLE = 718,
    PG_OID_MACADDR8 = 774,
    PG_OID_MONEY = 790,
    PG_OID_MACADDR = 829,
    PG_OID_INET = 869,
    PG_OID_BPCHAR = 1042,
    PG_OID_VARCHAR = 1043,
    PG_OID_DATE = 1082,
    PG_OID_TIME = 1083,
    PG_OID_TIMESTAMP = 1114,
    PG_OID_TIMESTAMPTZ = 1184,
    PG_OID_INTERVAL = 1186,
    PG_OID_TIMETZ = 1266,
    PG_OID_BIT = 1560,
    PG_OID_VARBIT = 1562,
    PG_OID_NUMERIC = 1700,
    PG_OID_RECORD = 2249,
    PG_OID_VOID = 2278,
    PG_OID_UUID = 2950,
    PG_OID_TSVECTOR = 3614,
    PG_OID_JSONB = 3802,
    PG_OID_INT4_RANGE = 3904,
    PG_OID_NUMERIC_RANGE = 3906,
    PG_OID_TIMESTAMP_RANGE = 3908,
    PG_OID_TIMESTAMPTZ_RANGE = 3910,
    PG_OID_DATE_RANGE = 3912,
    PG_OID_INT8_RANGE = 3926,
    // Arrays
    PG_OID_XML_ARRAY = 143,
    PG_OID_JSON_ARRAY = 199,
    PG_OID_CIDR_ARRAY = 651,
    PG_OID_MONEY_ARRAY = 791,
    PG_OID_BOOL_ARRAY = 1000,
    PG_OID_BYTEA_ARRAY = 1001,
    PG_OID_INT2_ARRAY = 1005,
    PG_OID_INT4_ARRAY = 1007,
    PG_OID_TEXT_ARRAY = 1009,
    PG_OID_BPCHAR_ARRAY = 1014,
    PG_OID_VARCHAR_ARRAY = 1015,
    PG_OID_INT8_ARRAY = 1016,
    PG_OID_FLOAT4_ARRAY = 1021,
    PG_OID_FLOAT8_ARRAY = 1022,
    PG_OID_OID_ARRAY = 1028,
    PG_OID_MACADDR_ARRAY = 1040,
    PG_OID_INET_ARRAY = 1041,
    PG_OID_TIMESTAMP_ARRAY = 1115,
    PG_OID_DATE_ARRAY = 1182,
    PG_OID_TIME_ARRAY = 1183,
    PG_OID_TIMESTAMPTZ_ARRAY = 1185,
    PG_OID_INTERVAL_ARRAY = 1187,
    PG_OID_NUMERIC_ARRAY = 1231,
    PG_OID_TIMETZ_ARRAY = 1270,
    PG_OID_UUID_ARRAY = 2951,
    PG_OID_JSONB_ARRAY = 3807
};

// ---- bool

static inline bool pg_read_bool(struct pg_span value, bool *truth)
{
    if (value.length != 1 || value.at[0] > 1) return false;
    *truth = value.at[0];
    return true;
}

static inline enum pg_written pg_put_bool(struct pg_buffer *buffer, bool truth)
{
    return pg_put_8(buffer, truth);
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

static inline enum pg_written pg_put_oid(struct pg_buffer *buffer, uint32_t oid)
{
    return pg_put_32(buffer, oid);
}

static inline enum pg_written pg_put_int2(struct pg_buffer *buffer, int16_t number)
{
    return pg_put_16(buffer, (uint16_t)number);
}

static inline enum pg_written pg_put_int4(struct pg_buffer *buffer, int32_t number)
{
    return pg_put_32(buffer, (uint32_t)number);
}

static inline enum pg_written pg_put_int8(struct pg_buffer *buffer, int64_t number)
{
    return pg_put_64(buffer, (uint64_t)number);
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

static inline enum pg_written pg_put_float4(struct pg_buffer *buffer, float number)
{
    uint32_t bits;
    memcpy(&bits, &number, 4);
    return pg_put_32(buffer, bits);
}

static inline enum pg_written pg_put_float8(struct pg_buffer *buffer, double number)
{
    uint64_t bits;
    memcpy(&bits, &number, 8);
    return pg_put_64(buffer, bits);
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
