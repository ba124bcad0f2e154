// The values of rows, as Ruby objects. Values of types that are not known yet wait in link->waiting
// (postgresql_types.c).
#include "postgresql/postgresql_link.h"

#include "wire/wire_postgresql_values.h"
#include "wire/wire_postgresql_values_geometry.h"
#include "wire/wire_postgresql_values_nested.h"
#include "wire/wire_postgresql_values_network.h"
#include "wire/wire_postgresql_values_numeric.h"
#include "wire/wire_postgresql_values_time.h"

#include <math.h>
#include <string.h>

// Values of a row that are read before they are appended to an Array.
enum { ROW_GATHERED = 64 };

// Values in values; a server that nests them deeper is hostile.
enum { NESTED_MOST = 64 };

static VALUE mValues, cDate, cDuration, cInterval, cPoint, cLine, cLineSegment, cBox, cPath, cPolygon, cCircle;
static ID id_parse, id_jd, id_gregorian, id_big_decimal, id_new, id_local, id_inet, id_range, id_call;

// A value that is being read.
struct reading {
    struct postgresql_link *link;
    unsigned depth;
    bool incomplete; // something is to be looked up first
};

static VALUE value_of(struct reading *reading, struct pg_span span, uint32_t oid, const struct postgresql_type *type);

RBIMPL_ATTR_NORETURN()
static void malformed(const struct reading *reading)
{
    db_link_violated(&reading->link->base, "sent a malformed value");
}

static inline void check(const struct reading *reading, bool valid)
{
    if (!valid) malformed(reading);
}

// ---- text

VALUE postgresql_utf8(struct pg_span span)
{
    return server_utf8((const char *)span.at, span.length, rb_utf8_encoding());
}

VALUE postgresql_text(struct pg_span span)
{
    return server_text((const char *)span.at, span.length, rb_utf8_encoding());
}

// Like rb_enc_str_new, without looking up the encoding. UTF-8 and binary are among the inlined encodings.
static VALUE string_value(struct pg_span span, int encoding)
{
    VALUE string = rb_str_new((const char *)span.at, (long)span.length);
    RB_ENCODING_SET_INLINED(string, encoding);
    return string;
}

static VALUE text_of(struct pg_span span)
{
    return string_value(span, rb_utf8_encindex());
}

static VALUE bytes_of(struct pg_span span)
{
    return string_value(span, rb_ascii8bit_encindex());
}

static VALUE bits_text(const struct pg_bits *bits)
{
    VALUE text = rb_utf8_str_new(NULL, (long)bits->count);
    for (uint32_t i = 0; i < bits->count; i++)
        RSTRING_PTR(text)[i] = pg_bit(bits, i) ? '1' : '0';
    return text;
}

// As tsvectorout of the server writes a lexeme.
static void append_lexeme(VALUE text, const struct pg_lexeme *lexeme)
{
    if (RSTRING_LEN(text)) rb_str_cat(text, " ", 1);
    rb_str_cat(text, "'", 1);
    for (size_t i = 0; i < lexeme->text.length; i++) {
        const char *p = (const char *)lexeme->text.at + i;
        if (*p == '\'' || *p == '\\') rb_str_cat(text, p, 1);
        rb_str_cat(text, p, 1);
    }
    rb_str_cat(text, "'", 1);
    for (uint16_t i = 0; i < lexeme->count; i++) {
        char weight;
        uint16_t position = pg_lexeme_position(lexeme, i, &weight);
        rb_str_catf(text, "%c%u", i ? ',' : ':', position);
        if (weight != 'D') rb_str_cat(text, &weight, 1);
    }
}

static VALUE tsvector_text(const struct reading *reading, struct pg_span span)
{
    struct pg_elements lexemes;
    struct pg_lexeme lexeme;
    VALUE text = rb_utf8_str_new(NULL, 0);
    check(reading, pg_tsvector_begin(span, &lexemes));
    while (pg_tsvector_next(&lexemes, &lexeme))
        append_lexeme(text, &lexeme);
    check(reading, pg_elements_complete(&lexemes));
    return text;
}

// ---- numbers

// The Float that prints like the server's number of 6 to 9 digits: 1.1 and not 1.100000023841858.
static VALUE float4_value(float number)
{
    for (int digits = 6; digits < 9; digits++) {
        char text[40];
        snprintf(text, sizeof(text), "%.*g", digits, (double)number);
        double read = strtod(text, NULL);
        if ((float)read == number) return DBL2NUM(read);
    }
    return DBL2NUM((double)number);
}

static VALUE numeric_value(const struct reading *reading, struct pg_span span)
{
    struct pg_numeric numeric;
    check(reading, pg_read_numeric(span, &numeric));
    size_t most = pg_numeric_text_most(&numeric);
    char small[256];
    VALUE text;
    if (most <= sizeof(small)) {
        text = rb_usascii_str_new(small, (long)pg_numeric_text(&numeric, small));
    } else {
        text = rb_usascii_str_new(NULL, (long)most);
        rb_str_set_len(text, (long)pg_numeric_text(&numeric, RSTRING_PTR(text)));
    }
    return rb_funcall(rb_mKernel, id_big_decimal, 1, text);
}

// ---- dates and times

static VALUE infinity(bool positive)
{
    return DBL2NUM(positive ? HUGE_VAL : -HUGE_VAL);
}

static VALUE date_value(int32_t days)
{
    enum { JULIAN_DAY = 2451545, REFORM = -152384 }; // 2000-01-01; 1582-10-15
    if (days == PG_DATE_INFINITY || days == PG_DATE_MINUS_INFINITY) return infinity(days > 0);
    VALUE day = LONG2NUM((long)days + JULIAN_DAY);
    // Ruby uses the Julian calendar for dates before the reform; the server does not.
    if (days < REFORM) return rb_funcall(cDate, id_jd, 2, day, rb_const_get(cDate, id_gregorian));
    return rb_funcall(cDate, id_jd, 1, day);
}

static VALUE time_value(const struct postgresql_link *link, int64_t microseconds)
{
    if (microseconds == PG_TIMESTAMP_INFINITY || microseconds == PG_TIMESTAMP_MINUS_INFINITY)
        return infinity(microseconds > 0);
    int64_t seconds = microseconds / 1000000, rest = microseconds % 1000000;
    if (rest < 0) {
        rest += 1000000;
        seconds--;
    }
    struct timespec spec = {.tv_sec = (time_t)(seconds + PG_EPOCH_SECONDS), .tv_nsec = (long)rest * 1000};
    return rb_time_timespec_new(&spec, link->local ? INT_MAX : INT_MAX - 1); // INT_MAX - 1: UTC
}

// A timestamp without a time zone is in that of this process where Ruby's times are.
static VALUE zoneless_value(const struct postgresql_link *link, int64_t microseconds)
{
    if (!link->local || microseconds == PG_TIMESTAMP_INFINITY || microseconds == PG_TIMESTAMP_MINUS_INFINITY)
        return time_value(link, microseconds);
    struct pg_moment moment;
    pg_timestamp_moment(microseconds, &moment);
    return rb_funcall(rb_cTime, id_local, 7, INT2NUM(moment.year), INT2FIX(moment.month), INT2FIX(moment.day),
                      INT2FIX(moment.hour), INT2FIX(moment.minute), INT2FIX(moment.second),
                      UINT2NUM(moment.microsecond));
}

// As the server prints it: "12:34:56.5+02".
static VALUE timetz_text(int64_t microseconds, int32_t west)
{
    int seconds = (int)(microseconds / 1000000), fraction = (int)(microseconds % 1000000);
    char text[64];
    int length = snprintf(text, sizeof(text), "%02d:%02d:%02d", seconds / 3600, seconds / 60 % 60, seconds % 60);
    if (fraction) {
        length += snprintf(text + length, sizeof(text) - (size_t)length, ".%06d", fraction);
        while (text[length - 1] == '0')
            length--;
    }
    int zone = west > 0 ? west : -west;
    length += snprintf(text + length, sizeof(text) - (size_t)length, "%c%02d", west > 0 ? '-' : '+', zone / 3600);
    if (zone % 3600) length += snprintf(text + length, sizeof(text) - (size_t)length, ":%02d", zone / 60 % 60);
    if (zone % 60) length += snprintf(text + length, sizeof(text) - (size_t)length, ":%02d", zone % 60);
    return rb_utf8_str_new(text, length);
}

static VALUE interval_value(const struct reading *reading, struct pg_span span)
{
    struct pg_interval interval;
    check(reading, pg_read_interval(span, &interval));
    int infinite = pg_interval_infinity(&interval);
    if (infinite) return infinity(infinite > 0);
    return rb_funcall(cInterval, id_new, 3, INT2NUM(interval.months), INT2NUM(interval.days),
                      LL2NUM(interval.microseconds));
}

// ---- addresses

static VALUE uuid_value(const struct reading *reading, struct pg_span span)
{
    char text[PG_UUID_TEXT];
    check(reading, pg_uuid_text(span, text));
    return rb_utf8_str_new(text, sizeof(text));
}

static VALUE mac_value(const struct reading *reading, struct pg_span span)
{
    char text[PG_MAC_TEXT_MOST];
    size_t length = pg_mac_text(span, text);
    check(reading, length > 0);
    return rb_utf8_str_new(text, (long)length);
}

static VALUE inet_value(const struct reading *reading, struct pg_span span)
{
    struct pg_inet inet;
    check(reading, pg_read_inet(span, &inet));
    VALUE address = rb_str_new((const char *)inet.address, inet.version == 4 ? 4 : 16);
    return rb_funcall(mValues, id_inet, 2, address, INT2FIX(inet.bits));
}

static VALUE lsn_value(const struct reading *reading, struct pg_span span)
{
    int64_t position;
    check(reading, pg_read_int8(span, &position));
    char text[32];
    int length = snprintf(text, sizeof(text), "%X/%X", (unsigned)((uint64_t)position >> 32), (unsigned)position);
    return rb_utf8_str_new(text, length);
}

// ---- geometry

static VALUE point_value(struct pg_point point)
{
    return rb_struct_new(cPoint, DBL2NUM(point.x), DBL2NUM(point.y));
}

static VALUE points_value(const struct pg_points *points)
{
    VALUE array = rb_ary_new_capa((long)points->count);
    for (uint32_t i = 0; i < points->count; i++)
        rb_ary_push(array, point_value(pg_point_of(points, i)));
    return array;
}

static VALUE geometry_value(const struct reading *reading, struct pg_span span, enum postgresql_kind kind)
{
    struct pg_point points[2];
    struct pg_line line;
    struct pg_circle circle;
    struct pg_points many;
    switch (kind) {
    case POSTGRESQL_KIND_POINT:
        check(reading, pg_read_point(span, points));
        return point_value(points[0]);
    case POSTGRESQL_KIND_LINE:
        check(reading, pg_read_line(span, &line));
        return rb_struct_new(cLine, DBL2NUM(line.a), DBL2NUM(line.b), DBL2NUM(line.c));
    case POSTGRESQL_KIND_LSEG:
    case POSTGRESQL_KIND_BOX:
        check(reading, pg_read_two_points(span, points));
        return rb_struct_new(kind == POSTGRESQL_KIND_BOX ? cBox : cLineSegment, point_value(points[0]),
                             point_value(points[1]));
    case POSTGRESQL_KIND_PATH:
        check(reading, pg_read_path(span, &many));
        return rb_struct_new(cPath, points_value(&many), many.closed ? Qtrue : Qfalse);
    case POSTGRESQL_KIND_POLYGON:
        check(reading, pg_read_polygon(span, &many));
        return rb_struct_new(cPolygon, points_value(&many));
    default:
        check(reading, pg_read_circle(span, &circle));
        return rb_struct_new(cCircle, point_value(circle.center), DBL2NUM(circle.radius));
    }
}

// ---- values that contain values

static struct postgresql_type inner_type(struct reading *reading, uint32_t oid)
{
    struct postgresql_type type = postgresql_type_of(reading->link->types, oid);
    if (type.kind == POSTGRESQL_KIND_UNKNOWN) postgresql_type_wanted(reading->link, oid);
    return type;
}

static VALUE inner_value(struct reading *reading, struct pg_span span, uint32_t oid)
{
    struct postgresql_type type = inner_type(reading, oid);
    return value_of(reading, span, oid, &type);
}

static VALUE dimension(struct reading *reading, struct pg_array *array, const struct postgresql_type *type,
                       uint8_t level)
{
    VALUE values = rb_ary_new_capa((long)array->sizes[level]);
    for (uint32_t i = 0; i < array->sizes[level]; i++) {
        struct pg_span element;
        if (level + 1 < array->dimensions) {
            rb_ary_push(values, dimension(reading, array, type, level + 1));
        } else {
            check(reading, pg_array_next(array, &element));
            rb_ary_push(values, value_of(reading, element, array->type, type));
        }
    }
    return values;
}

static VALUE array_value(struct reading *reading, struct pg_span span)
{
    struct pg_array array;
    check(reading, pg_array_begin(span, &array));
    if (!array.elements.count) { // a size of one dimension may be large where another is 0
        check(reading, pg_array_complete(&array));
        return rb_ary_new();
    }
    struct postgresql_type type = inner_type(reading, array.type);
    VALUE values = dimension(reading, &array, &type, 0);
    check(reading, pg_array_complete(&array));
    RB_GC_GUARD(type.extra);
    RB_GC_GUARD(type.convert);
    return values;
}

static VALUE range_value(struct reading *reading, const struct pg_range *range, uint32_t element)
{
    struct postgresql_type type = inner_type(reading, element);
    VALUE lower = value_of(reading, range->lower, element, &type);
    VALUE upper = value_of(reading, range->upper, element, &type);
    if (reading->incomplete) return Qnil;
    return rb_funcall(mValues, id_range, 3, lower, upper, INT2FIX(range->flags));
}

static VALUE multirange_value(struct reading *reading, struct pg_span span, uint32_t element)
{
    struct pg_elements ranges;
    struct pg_range range;
    check(reading, pg_multirange_begin(span, &ranges));
    struct postgresql_type type = inner_type(reading, element);
    if (type.kind != POSTGRESQL_KIND_RANGE) {
        check(reading, type.kind == POSTGRESQL_KIND_UNKNOWN);
        reading->incomplete = true;
        return Qnil;
    }
    VALUE values = rb_ary_new_capa((long)ranges.count);
    while (pg_multirange_next(&ranges, &range))
        rb_ary_push(values, range_value(reading, &range, type.element));
    check(reading, pg_elements_complete(&ranges));
    return values;
}

// A record has no names: an Array. A composite type's value is a Hash.
static VALUE composite_value(struct reading *reading, struct pg_span span, VALUE names)
{
    struct pg_elements fields;
    struct pg_span field;
    uint32_t oid;
    check(reading, pg_composite_begin(span, &fields));
    VALUE values = rb_ary_new_capa((long)fields.count);
    while (pg_composite_next(&fields, &oid, &field))
        rb_ary_push(values, inner_value(reading, field, oid));
    check(reading, pg_elements_complete(&fields));
    if (NIL_P(names)) return values;
    VALUE hash = rb_hash_new();
    for (long i = 0; i < RARRAY_LEN(values); i++)
        rb_hash_aset(hash, RARRAY_AREF(names, i), RARRAY_AREF(values, i));
    return hash;
}

// Whether the type has as many fields as the value: another connection may have changed it since the look-up.
static bool same_fields(struct pg_span span, VALUE names)
{
    struct pg_elements fields;
    return RB_TYPE_P(names, T_ARRAY) && pg_composite_begin(span, &fields) &&
           fields.count == (uint32_t)RARRAY_LEN(names);
}

static VALUE hstore_value(const struct reading *reading, struct pg_span span)
{
    struct pg_elements pairs;
    struct pg_span key, value;
    check(reading, pg_hstore_begin(span, &pairs));
    VALUE hash = rb_hash_new();
    while (pg_hstore_next(&pairs, &key, &value))
        rb_hash_aset(hash, text_of(key), value.at ? text_of(value) : Qnil);
    check(reading, pg_elements_complete(&pairs));
    return hash;
}

static VALUE vector_value(const struct reading *reading, struct pg_span span)
{
    struct pg_vector vector;
    check(reading, pg_read_vector(span, &vector));
    VALUE numbers = rb_ary_new_capa(vector.count);
    for (uint16_t i = 0; i < vector.count; i++)
        rb_ary_push(numbers, float4_value(pg_vector_number(&vector, i)));
    return numbers;
}

// ---- any value

static VALUE server_value(struct reading *reading, struct pg_span span, uint32_t oid, enum postgresql_kind kind)
{
    VALUE text = postgresql_server_text(reading->link, oid, bytes_of(span));
    if (text == Qundef) {
        reading->incomplete = true;
        return Qnil;
    }
    if (kind == POSTGRESQL_KIND_MONEY) return rb_funcall(rb_mKernel, id_big_decimal, 1, text);
    return rb_str_dup(text);
}

// Values that make few objects, without Ruby code.
static VALUE plain_value(struct reading *reading, struct pg_span span, enum postgresql_kind kind)
{
    union {
        bool truth;
        int16_t int2;
        int32_t int4;
        int64_t int8;
        uint32_t oid;
        float float4;
        double float8;
        struct pg_bits bits;
    } read;
    int64_t microseconds;
    int32_t west;
    switch (kind) {
    case POSTGRESQL_KIND_BOOL:
        check(reading, pg_read_bool(span, &read.truth));
        return read.truth ? Qtrue : Qfalse;
    case POSTGRESQL_KIND_INT2:
        check(reading, pg_read_int2(span, &read.int2));
        return INT2FIX(read.int2);
    case POSTGRESQL_KIND_INT4:
        check(reading, pg_read_int4(span, &read.int4));
        return INT2NUM(read.int4);
    case POSTGRESQL_KIND_INT8:
        check(reading, pg_read_int8(span, &read.int8));
        return LL2NUM(read.int8);
    case POSTGRESQL_KIND_UINT4:
        check(reading, pg_read_oid(span, &read.oid));
        return UINT2NUM(read.oid);
    case POSTGRESQL_KIND_UINT8:
        check(reading, pg_read_int8(span, &read.int8));
        return ULL2NUM((uint64_t)read.int8);
    case POSTGRESQL_KIND_FLOAT4:
        check(reading, pg_read_float4(span, &read.float4));
        return float4_value(read.float4);
    case POSTGRESQL_KIND_FLOAT8:
        check(reading, pg_read_float8(span, &read.float8));
        return DBL2NUM(read.float8);
    case POSTGRESQL_KIND_BYTES:
        return bytes_of(span);
    case POSTGRESQL_KIND_UUID:
        return uuid_value(reading, span);
    case POSTGRESQL_KIND_JSONB:
    case POSTGRESQL_KIND_VERSIONED:
        check(reading, pg_read_versioned(span, &span));
        return text_of(span);
    case POSTGRESQL_KIND_VOID:
        return Qnil;
    case POSTGRESQL_KIND_TIMESTAMPTZ:
        check(reading, pg_read_timestamp(span, &microseconds));
        return time_value(reading->link, microseconds);
    case POSTGRESQL_KIND_TIMETZ:
        check(reading, pg_read_timetz(span, &microseconds, &west));
        return timetz_text(microseconds, west);
    case POSTGRESQL_KIND_MACADDR:
        return mac_value(reading, span);
    case POSTGRESQL_KIND_BITS:
        check(reading, pg_read_bits(span, &read.bits));
        return bits_text(&read.bits);
    case POSTGRESQL_KIND_LSN:
        return lsn_value(reading, span);
    case POSTGRESQL_KIND_TSVECTOR:
        return tsvector_text(reading, span);
    default:
        return text_of(span);
    }
}

static VALUE ruby_value(struct reading *reading, struct pg_span span, uint32_t oid, const struct postgresql_type *type)
{
    int32_t days;
    int64_t microseconds;
    struct pg_range range;
    switch (type->kind) {
    case POSTGRESQL_KIND_NUMERIC:
        return numeric_value(reading, span);
    case POSTGRESQL_KIND_DATE:
        check(reading, pg_read_date(span, &days));
        return date_value(days);
    case POSTGRESQL_KIND_TIMESTAMP:
        check(reading, pg_read_timestamp(span, &microseconds));
        return zoneless_value(reading->link, microseconds);
    case POSTGRESQL_KIND_TIME:
        check(reading, pg_read_time(span, &microseconds));
        return rb_funcall(cDuration, id_new, 1, LL2NUM(microseconds));
    case POSTGRESQL_KIND_INTERVAL:
        return interval_value(reading, span);
    case POSTGRESQL_KIND_INET:
        return inet_value(reading, span);
    case POSTGRESQL_KIND_ARRAY:
        return array_value(reading, span);
    case POSTGRESQL_KIND_RANGE:
        check(reading, pg_read_range(span, &range));
        return range_value(reading, &range, type->element);
    case POSTGRESQL_KIND_MULTIRANGE:
        return multirange_value(reading, span, type->element);
    case POSTGRESQL_KIND_RECORD:
        return composite_value(reading, span, Qnil);
    case POSTGRESQL_KIND_COMPOSITE:
        if (same_fields(span, type->extra)) return composite_value(reading, span, type->extra);
        postgresql_type_wanted(reading->link, oid);
        reading->incomplete = true;
        return Qnil;
    case POSTGRESQL_KIND_DOMAIN:
        return inner_value(reading, span, type->element);
    case POSTGRESQL_KIND_HSTORE:
        return hstore_value(reading, span);
    case POSTGRESQL_KIND_VECTOR:
        return vector_value(reading, span);
    case POSTGRESQL_KIND_MONEY:
    case POSTGRESQL_KIND_SERVER:
        return server_value(reading, span, oid, type->kind);
    default:
        return geometry_value(reading, span, type->kind);
    }
}

static VALUE value_of(struct reading *reading, struct pg_span span, uint32_t oid, const struct postgresql_type *type)
{
    if (!span.at) return Qnil;
    if (type->kind == POSTGRESQL_KIND_UNKNOWN) {
        reading->incomplete = true;
        return Qnil;
    }
    if (type->kind < POSTGRESQL_KIND_RUBY && NIL_P(type->convert)) return plain_value(reading, span, type->kind);
    if (!NIL_P(type->convert) && reading->link->base.busy) {
        // The program's own code runs after the exchange: what it raises must not break off the exchange.
        reading->incomplete = true;
        return Qnil;
    }
    if (++reading->depth > NESTED_MOST) malformed(reading);
    VALUE value = type->kind < POSTGRESQL_KIND_RUBY ? plain_value(reading, span, type->kind)
                                                    : ruby_value(reading, span, oid, type);
    reading->depth--;
    if (NIL_P(type->convert) || reading->incomplete) return value;
    return rb_funcall(type->convert, id_call, 1, value);
}

// Reads a value of a simple Query, which has no binary values.
static VALUE text_value(struct postgresql_link *link, struct pg_span span, enum postgresql_kind kind, uint32_t oid)
{
    if (!span.at) return Qnil;
    switch (kind) {
    case POSTGRESQL_KIND_BOOL:
        return span.length && *span.at == 't' ? Qtrue : Qfalse;
    case POSTGRESQL_KIND_INT2:
    case POSTGRESQL_KIND_INT4:
    case POSTGRESQL_KIND_INT8:
    case POSTGRESQL_KIND_UINT4:
    case POSTGRESQL_KIND_UINT8:
        return rb_str_to_inum(text_of(span), 10, 0);
    case POSTGRESQL_KIND_VOID:
        return Qnil;
    case POSTGRESQL_KIND_BYTES:
    case POSTGRESQL_KIND_FLOAT4:
    case POSTGRESQL_KIND_FLOAT8:
    case POSTGRESQL_KIND_TIMESTAMPTZ:
    case POSTGRESQL_KIND_NUMERIC:
    case POSTGRESQL_KIND_DATE:
    case POSTGRESQL_KIND_TIMESTAMP:
        return rb_funcall(mValues, id_parse, 3, UINT2NUM(oid), text_of(span), link->local ? Qtrue : Qfalse);
    default:
        return text_of(span);
    }
}

// ---- rows

static VALUE column_value(struct reading *reading, struct postgresql_columns *columns, uint32_t index,
                          struct pg_span span, VALUE *waiting)
{
    const struct postgresql_column *column = &columns->columns[index];
    if (reading->link->textual) return span.at ? text_of(span) : Qnil;
    if (reading->link->text) return text_value(reading->link, span, column->type.kind, column->oid);
    if (column->type.kind == POSTGRESQL_KIND_UNKNOWN) postgresql_column_known(reading->link, columns, index);
    VALUE value = value_of(reading, span, column->oid, &column->type);
    if (!reading->incomplete) return value;
    reading->incomplete = false;
    reading->depth = 0;
    VALUE fields[] = {Qnil, UINT2NUM(index), UINT2NUM(column->oid), bytes_of(span)};
    if (NIL_P(*waiting)) *waiting = rb_ary_new();
    rb_ary_push(*waiting, rb_ary_new_from_values(4, fields));
    return Qnil;
}

static void wait_for_types(struct postgresql_link *link, VALUE row, VALUE waiting)
{
    for (long i = 0; i < RARRAY_LEN(waiting); i++)
        rb_ary_store(RARRAY_AREF(waiting, i), 0, row);
    if (NIL_P(link->waiting)) {
        link->waiting = waiting;
    } else {
        rb_ary_concat(link->waiting, waiting);
    }
}

VALUE postgresql_row_values(struct postgresql_link *link, struct pg_message message, struct postgresql_columns *columns)
{
    const uint8_t *p = message.p, *end = message.end;
    bool runs_ruby = !link->textual && (columns->copies || link->text);
    if (runs_ruby && NIL_P(link->apart)) {
        // Ruby code may let other threads run, and one of them may close the stream, which frees its buffer.
        link->row.length = 0;
        postgresql_check(pg_put_bytes(&link->row, p, (size_t)(end - p)));
        p = link->row.at;
        end = p + link->row.length;
    }
    struct pg_row row;
    if (!pg_row_begin(p, end, &row) || row.count != columns->count)
        db_link_violated(&link->base, "sent a row with other columns than it had described");
    VALUE gathered[ROW_GATHERED]; // on the stack, where the GC finds them
    VALUE array = columns->count > ROW_GATHERED ? rb_ary_new_capa((long)columns->count) : Qnil;
    VALUE waiting = Qnil;
    struct reading reading = {.link = link};
    uint32_t count = 0;
    struct pg_span span;
    while (pg_row_next(&row, &span)) {
        gathered[count++] = column_value(&reading, columns, row.index - 1, span, &waiting);
        if (count < ROW_GATHERED || NIL_P(array)) continue;
        rb_ary_cat(array, gathered, (long)count);
        count = 0;
    }
    if (!pg_row_complete(&row)) db_link_violated(&link->base, "sent a malformed row");
    if (NIL_P(array)) {
        array = rb_ary_new_from_values((long)count, gathered);
    } else if (count) {
        rb_ary_cat(array, gathered, (long)count);
    }
    if (!NIL_P(waiting)) wait_for_types(link, array, waiting);
    return array;
}

/* @api private link.settle_value([row, index, oid, bytes]) -> true or false: whether the row has its value now */
static VALUE settle_value(VALUE self, VALUE waiting)
{
    struct postgresql_link *link = postgresql_link_of(self);
    Check_Type(waiting, T_ARRAY);
    VALUE row = rb_ary_entry(waiting, 0), bytes = rb_ary_entry(waiting, 3);
    Check_Type(row, T_ARRAY);
    StringValue(bytes);
    struct reading reading = {.link = link};
    struct pg_span span = {(const uint8_t *)RSTRING_PTR(bytes), (size_t)RSTRING_LEN(bytes)};
    VALUE value = inner_value(&reading, span, NUM2UINT(rb_ary_entry(waiting, 2)));
    RB_GC_GUARD(bytes);
    if (reading.incomplete) return Qfalse;
    rb_ary_store(row, NUM2LONG(rb_ary_entry(waiting, 1)), value);
    return Qtrue;
}

void postgresql_values_init(void)
{
    id_parse = rb_intern("parse");
    id_jd = rb_intern("jd");
    id_gregorian = rb_intern("GREGORIAN");
    id_big_decimal = rb_intern("BigDecimal");
    id_new = rb_intern("new");
    id_local = rb_intern("local");
    id_inet = rb_intern("inet");
    id_range = rb_intern("range");
    id_call = rb_intern("call");
    rb_define_method(postgresql_cLink, "settle_value", settle_value, 1);
}

static VALUE class_of(const char *name)
{
    VALUE found = rb_path2class(name);
    rb_gc_register_mark_object(found);
    return found;
}

void postgresql_values_classes(void)
{
    mValues = class_of("Heddle::DB::PostgreSQL::Values");
    cDate = class_of("Date");
    cDuration = class_of("Heddle::DB::Duration");
    cInterval = class_of("Heddle::DB::PostgreSQL::Interval");
    cPoint = class_of("Heddle::DB::PostgreSQL::Point");
    cLine = class_of("Heddle::DB::PostgreSQL::Line");
    cLineSegment = class_of("Heddle::DB::PostgreSQL::LineSegment");
    cBox = class_of("Heddle::DB::PostgreSQL::Box");
    cPath = class_of("Heddle::DB::PostgreSQL::Path");
    cPolygon = class_of("Heddle::DB::PostgreSQL::Polygon");
    cCircle = class_of("Heddle::DB::PostgreSQL::Circle");
}
