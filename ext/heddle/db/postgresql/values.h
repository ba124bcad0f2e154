// One value of a row as a Ruby object: what values.c shares with the files of single kinds.
#ifndef HEDDLE_DB_POSTGRESQL_VALUES_H
#define HEDDLE_DB_POSTGRESQL_VALUES_H

#include "db/postgresql/protocol.h"
#include "wire/postgresql/values.h"
#include "wire/postgresql/values_nested.h"

// A value that is being read.
struct postgresql_reading {
    struct postgresql_protocol *protocol;
    unsigned depth;
    bool incomplete; // something is to be looked up first
    // postgresql_value, for those that a value contains.
    VALUE(*value)
    (struct postgresql_reading *reading, struct pg_span span, uint32_t oid, const struct postgresql_type *type);
};

// Raises Heddle::DB::ProtocolError.
static inline void postgresql_check_value(const struct postgresql_reading *reading, bool valid)
{
    if (!valid) db_protocol_violated(&reading->protocol->base, "sent a malformed value");
}

// A String in UTF-8. Like rb_enc_str_new, without looking up the encoding, which is among the inlined ones.
static inline VALUE postgresql_text_value(struct pg_span span)
{
    VALUE string = rb_str_new((const char *)span.at, (long)span.length);
    RB_ENCODING_SET_INLINED(string, rb_utf8_encindex());
    return string;
}

// ---- values.c

// A value of any type, of the bytes in `span`. nil if the reading is incomplete then.
VALUE postgresql_value(struct postgresql_reading *reading, struct pg_span span, uint32_t oid,
                       const struct postgresql_type *type);

// ---- values_time.c

VALUE postgresql_date_value(int32_t days);

// Of a timestamptz; infinity is a Float.
VALUE postgresql_time_value(const struct postgresql_protocol *protocol, int64_t microseconds);

// Of a timestamp.
VALUE postgresql_zoneless_value(const struct postgresql_protocol *protocol, int64_t microseconds);
VALUE postgresql_timetz_text(int64_t microseconds, int32_t west);
VALUE postgresql_interval_value(const struct postgresql_reading *reading, struct pg_span span);
void postgresql_values_time_define(void);
void postgresql_values_time_load_classes(void);

// ---- values_geometry.c

VALUE postgresql_geometry_value(const struct postgresql_reading *reading, struct pg_span span,
                                enum postgresql_kind kind);
void postgresql_values_geometry_load_classes(void);

// ---- values_nested.c: values that contain values

// The Float that prints like the server's number.
VALUE postgresql_float4_value(float number);

VALUE postgresql_inner_value(struct postgresql_reading *reading, struct pg_span span, uint32_t oid);
VALUE postgresql_array_value(struct postgresql_reading *reading, struct pg_span span);
VALUE postgresql_range_value(struct postgresql_reading *reading, const struct pg_range *range, uint32_t element);
VALUE postgresql_multirange_value(struct postgresql_reading *reading, struct pg_span span, uint32_t element);
VALUE postgresql_composite_value(struct postgresql_reading *reading, struct pg_span span, VALUE names);

// Whether the value has as many fields as `names`, those of its type when the type was looked up.
bool postgresql_same_fields(struct pg_span span, VALUE names);
VALUE postgresql_hstore_value(const struct postgresql_reading *reading, struct pg_span span);
VALUE postgresql_vector_value(const struct postgresql_reading *reading, struct pg_span span);
void postgresql_values_nested_define(void);
void postgresql_values_nested_load_classes(void);

#endif
