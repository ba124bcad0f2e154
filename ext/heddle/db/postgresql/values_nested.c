// Values that contain values: arrays, ranges, rows, hstore and vectors.
#include "db/postgresql/values.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

static VALUE mValues;
static ID id_range;

static struct postgresql_type inner_type(struct postgresql_reading *reading, uint32_t oid)
{
    struct postgresql_type type = postgresql_type_of(reading->protocol->types, oid);
    if (type.kind == POSTGRESQL_KIND_UNKNOWN) postgresql_type_wanted(reading->protocol, oid);
    return type;
}

VALUE postgresql_inner_value(struct postgresql_reading *reading, struct pg_span span, uint32_t oid)
{
    struct postgresql_type type = inner_type(reading, oid);
    return reading->value(reading, span, oid, &type);
}

static VALUE dimension(struct postgresql_reading *reading, struct pg_array *array, const struct postgresql_type *type,
                       uint8_t level)
{
    VALUE values = rb_ary_new_capa((long)array->sizes[level]);
    for (uint32_t i = 0; i < array->sizes[level]; i++) {
        struct pg_span element;
        if (level + 1 < array->dimensions) {
            rb_ary_push(values, dimension(reading, array, type, level + 1));
        } else {
            postgresql_check_value(reading, pg_array_next(array, &element));
            rb_ary_push(values, reading->value(reading, element, array->type, type));
        }
    }
    return values;
}

VALUE postgresql_array_value(struct postgresql_reading *reading, struct pg_span span)
{
    struct pg_array array;
    postgresql_check_value(reading, pg_array_begin(span, &array));
    if (!array.elements.count) { // a size of one dimension may be large where another is 0
        postgresql_check_value(reading, pg_array_complete(&array));
        return rb_ary_new();
    }
    struct postgresql_type type = inner_type(reading, array.type);
    VALUE values = dimension(reading, &array, &type, 0);
    postgresql_check_value(reading, pg_array_complete(&array));
    RB_GC_GUARD(type.extra);
    RB_GC_GUARD(type.convert);
    return values;
}

VALUE postgresql_range_value(struct postgresql_reading *reading, const struct pg_range *range, uint32_t element)
{
    struct postgresql_type type = inner_type(reading, element);
    VALUE lower = reading->value(reading, range->lower, element, &type);
    VALUE upper = reading->value(reading, range->upper, element, &type);
    if (reading->incomplete) return Qnil;
    return rb_funcall(mValues, id_range, 3, lower, upper, INT2FIX(range->flags));
}

VALUE postgresql_multirange_value(struct postgresql_reading *reading, struct pg_span span, uint32_t element)
{
    struct pg_elements ranges;
    struct pg_range range;
    postgresql_check_value(reading, pg_multirange_begin(span, &ranges));
    struct postgresql_type type = inner_type(reading, element);
    if (type.kind != POSTGRESQL_KIND_RANGE) {
        postgresql_check_value(reading, type.kind == POSTGRESQL_KIND_UNKNOWN);
        reading->incomplete = true;
        return Qnil;
    }
    VALUE values = rb_ary_new_capa((long)ranges.count);
    while (pg_multirange_next(&ranges, &range))
        rb_ary_push(values, postgresql_range_value(reading, &range, type.element));
    postgresql_check_value(reading, pg_elements_complete(&ranges));
    return values;
}

// A record has no names: an Array. A composite type's value is a Hash.
VALUE postgresql_composite_value(struct postgresql_reading *reading, struct pg_span span, VALUE names)
{
    struct pg_elements fields;
    struct pg_span field;
    uint32_t oid;
    postgresql_check_value(reading, pg_composite_begin(span, &fields));
    VALUE values = rb_ary_new_capa((long)fields.count);
    while (pg_composite_next(&fields, &oid, &field))
        rb_ary_push(values, postgresql_inner_value(reading, field, oid));
    postgresql_check_value(reading, pg_elements_complete(&fields));
    if (NIL_P(names)) return values;
    VALUE hash = rb_hash_new();
    for (long i = 0; i < RARRAY_LEN(values); i++)
        rb_hash_aset(hash, RARRAY_AREF(names, i), RARRAY_AREF(values, i));
    return hash;
}

// Another connection may have changed the type since the look-up.
bool postgresql_same_fields(struct pg_span span, VALUE names)
{
    struct pg_elements fields;
    return RB_TYPE_P(names, T_ARRAY) && pg_composite_begin(span, &fields) &&
           fields.count == (uint32_t)RARRAY_LEN(names);
}

VALUE postgresql_hstore_value(const struct postgresql_reading *reading, struct pg_span span)
{
    struct pg_elements pairs;
    struct pg_span key, value;
    postgresql_check_value(reading, pg_hstore_begin(span, &pairs));
    VALUE hash = rb_hash_new();
    while (pg_hstore_next(&pairs, &key, &value))
        rb_hash_aset(hash, postgresql_text_value(key), value.at ? postgresql_text_value(value) : Qnil);
    postgresql_check_value(reading, pg_elements_complete(&pairs));
    return hash;
}

// The Float that prints like the server's number of 6 to 9 digits: 1.1 and not 1.100000023841858.
VALUE postgresql_float4_value(float number)
{
    int least = fabsf(number) < FLT_MIN ? 1 : 6; // of one that is not normal fewer digits count
    for (int digits = least; digits <= 9; digits++) {
        char text[40];
        snprintf(text, sizeof(text), "%.*g", digits, (double)number);
        double read = strtod(text, NULL);
        // Half way to the next one would be rounded to this one or that: the server writes another digit then.
        double step = (double)nextafterf(number, read > number ? INFINITY : -INFINITY) - number;
        if ((float)read == number && fabs(read - number) * 2 < fabs(step)) return DBL2NUM(read);
    }
    return DBL2NUM((double)number);
}

VALUE postgresql_vector_value(const struct postgresql_reading *reading, struct pg_span span)
{
    struct pg_vector vector;
    postgresql_check_value(reading, pg_read_vector(span, &vector));
    VALUE numbers = rb_ary_new_capa(vector.count);
    for (uint16_t i = 0; i < vector.count; i++)
        rb_ary_push(numbers, postgresql_float4_value(pg_vector_number(&vector, i)));
    return numbers;
}

void postgresql_values_nested_define(void)
{
    id_range = rb_intern("range");
}

void postgresql_values_nested_load_classes(void)
{
    mValues = db_class("Heddle::DB::PostgreSQL::Values");
}
