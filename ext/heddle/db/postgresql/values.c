// The values of rows, as Ruby objects. Values of types that are not known yet wait in protocol->waiting (types.c).
#include "db/postgresql/values.h"

#include "wire/postgresql/values_network.h"
#include "wire/postgresql/values_numeric.h"
#include "wire/postgresql/values_time.h"

#include <float.h>
#include <math.h>
#include <string.h>

// Values of a row that are read before they are appended to an Array.
enum { ROW_GATHERED = 64 };

// A number with more digits takes long to convert.
enum { LONG_NUMBER = 256 };

// Values in values; a server that nests them deeper is hostile.
enum { NESTED_MOST = 64 };

static VALUE mValues, cDuration;
static ID id_parse, id_big_decimal, id_new, id_inet, id_call;

// ---- text

static VALUE values_bytes_of(struct pg_span span)
{
    return rb_str_new((const char *)span.at, (long)span.length);
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

static VALUE tsvector_text(const struct postgresql_reading *reading, struct pg_span span)
{
    struct pg_elements lexemes;
    struct pg_lexeme lexeme;
    VALUE text = rb_utf8_str_new(NULL, 0);
    postgresql_check_value(reading, pg_tsvector_begin(span, &lexemes));
    while (pg_tsvector_next(&lexemes, &lexeme))
        append_lexeme(text, &lexeme);
    postgresql_check_value(reading, pg_elements_complete(&lexemes));
    return text;
}

// ---- numbers

// A numeric of a few bytes may have 131,072 digits. They count as parsed bytes, so that other fibers run between many
// such numbers.
static VALUE big_decimal(struct postgresql_protocol *protocol, VALUE text)
{
    VALUE number = rb_funcall(rb_mKernel, id_big_decimal, 1, text);
    size_t length = (size_t)RSTRING_LEN(text);
    if (length > LONG_NUMBER && !stream_is_closed(protocol->base.stream))
        stream_parsed(stream_of(protocol->base.stream), length);
    return number;
}

static VALUE numeric_value(const struct postgresql_reading *reading, struct pg_span span)
{
    struct pg_numeric numeric;
    postgresql_check_value(reading, pg_read_numeric(span, &numeric));
    size_t most = pg_numeric_text_most(&numeric);
    char small[256];
    VALUE text;
    if (most <= sizeof(small)) {
        text = rb_usascii_str_new(small, (long)pg_numeric_text(&numeric, small));
    } else {
        text = rb_usascii_str_new(NULL, (long)most);
        rb_str_set_len(text, (long)pg_numeric_text(&numeric, RSTRING_PTR(text)));
    }
    return big_decimal(reading->protocol, text);
}

// ---- addresses

static VALUE uuid_value(const struct postgresql_reading *reading, struct pg_span span)
{
    char text[PG_UUID_TEXT];
    postgresql_check_value(reading, pg_uuid_text(span, text));
    return rb_utf8_str_new(text, sizeof(text));
}

static VALUE mac_value(const struct postgresql_reading *reading, struct pg_span span)
{
    char text[PG_MAC_TEXT_MOST];
    size_t length = pg_mac_text(span, text);
    postgresql_check_value(reading, length > 0);
    return rb_utf8_str_new(text, (long)length);
}

static VALUE inet_value(const struct postgresql_reading *reading, struct pg_span span)
{
    struct pg_inet inet;
    postgresql_check_value(reading, pg_read_inet(span, &inet));
    VALUE address = rb_str_new((const char *)inet.address, inet.version == 4 ? 4 : 16);
    return rb_funcall(mValues, id_inet, 2, address, INT2FIX(inet.bits));
}

static VALUE lsn_value(const struct postgresql_reading *reading, struct pg_span span)
{
    int64_t position;
    postgresql_check_value(reading, pg_read_int8(span, &position));
    char text[32];
    const char *format = reading->protocol->version >= 19 ? "%X/%08X" : "%X/%X"; // as the server writes it
    int length = snprintf(text, sizeof(text), format, (unsigned)((uint64_t)position >> 32), (unsigned)position);
    return rb_utf8_str_new(text, length);
}

// ---- any value

static VALUE server_value(struct postgresql_reading *reading, struct pg_span span, uint32_t oid,
                          enum postgresql_kind kind)
{
    VALUE text = postgresql_server_text(reading->protocol, oid, values_bytes_of(span));
    if (text == Qundef) {
        reading->incomplete = true;
        return Qnil;
    }
    if (kind == POSTGRESQL_KIND_MONEY) return rb_funcall(rb_mKernel, id_big_decimal, 1, text);
    return rb_str_dup(text);
}

// Values that make few objects, without Ruby code.
static VALUE plain_value(struct postgresql_reading *reading, struct pg_span span, enum postgresql_kind kind)
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
        postgresql_check_value(reading, pg_read_bool(span, &read.truth));
        return read.truth ? Qtrue : Qfalse;
    case POSTGRESQL_KIND_INT2:
        postgresql_check_value(reading, pg_read_int2(span, &read.int2));
        return INT2FIX(read.int2);
    case POSTGRESQL_KIND_INT4:
        postgresql_check_value(reading, pg_read_int4(span, &read.int4));
        return INT2NUM(read.int4);
    case POSTGRESQL_KIND_INT8:
        postgresql_check_value(reading, pg_read_int8(span, &read.int8));
        return LL2NUM(read.int8);
    case POSTGRESQL_KIND_UINT4:
        postgresql_check_value(reading, pg_read_oid(span, &read.oid));
        return UINT2NUM(read.oid);
    case POSTGRESQL_KIND_UINT8:
        postgresql_check_value(reading, pg_read_int8(span, &read.int8));
        return ULL2NUM((uint64_t)read.int8);
    case POSTGRESQL_KIND_FLOAT4:
        postgresql_check_value(reading, pg_read_float4(span, &read.float4));
        return postgresql_float4_value(read.float4);
    case POSTGRESQL_KIND_FLOAT8:
        postgresql_check_value(reading, pg_read_float8(span, &read.float8));
        return DBL2NUM(read.float8);
    case POSTGRESQL_KIND_BYTES: return values_bytes_of(span);
    case POSTGRESQL_KIND_UUID: return uuid_value(reading, span);
    case POSTGRESQL_KIND_JSONB:
    case POSTGRESQL_KIND_VERSIONED:
        postgresql_check_value(reading, pg_read_versioned(span, &span));
        return postgresql_text_value(span);
    case POSTGRESQL_KIND_VOID: return Qnil;
    case POSTGRESQL_KIND_TIMESTAMPTZ:
        postgresql_check_value(reading, pg_read_timestamp(span, &microseconds));
        return postgresql_time_value(reading->protocol, microseconds);
    case POSTGRESQL_KIND_TIMETZ:
        postgresql_check_value(reading, pg_read_timetz(span, &microseconds, &west));
        return postgresql_timetz_text(microseconds, west);
    case POSTGRESQL_KIND_MACADDR: return mac_value(reading, span);
    case POSTGRESQL_KIND_BITS:
        postgresql_check_value(reading, pg_read_bits(span, &read.bits));
        return bits_text(&read.bits);
    case POSTGRESQL_KIND_LSN: return lsn_value(reading, span);
    case POSTGRESQL_KIND_TSVECTOR: return tsvector_text(reading, span);
    default:
        if (span.length == 1 && !*span.at) span.length = 0; // an empty "char": no text has a NUL
        return postgresql_text_value(span);
    }
}

static VALUE ruby_value(struct postgresql_reading *reading, struct pg_span span, uint32_t oid,
                        const struct postgresql_type *type)
{
    int32_t days;
    int64_t microseconds;
    struct pg_range range;
    switch (type->kind) {
    case POSTGRESQL_KIND_NUMERIC: return numeric_value(reading, span);
    case POSTGRESQL_KIND_DATE:
        postgresql_check_value(reading, pg_read_date(span, &days));
        return postgresql_date_value(days);
    case POSTGRESQL_KIND_TIMESTAMP:
        postgresql_check_value(reading, pg_read_timestamp(span, &microseconds));
        return postgresql_zoneless_value(reading->protocol, microseconds);
    case POSTGRESQL_KIND_TIME:
        postgresql_check_value(reading, pg_read_time(span, &microseconds));
        return rb_funcall(cDuration, id_new, 1, LL2NUM(microseconds));
    case POSTGRESQL_KIND_INTERVAL: return postgresql_interval_value(reading, span);
    case POSTGRESQL_KIND_INET: return inet_value(reading, span);
    case POSTGRESQL_KIND_ARRAY: return postgresql_array_value(reading, span);
    case POSTGRESQL_KIND_RANGE:
        postgresql_check_value(reading, pg_read_range(span, &range));
        return postgresql_range_value(reading, &range, type->element);
    case POSTGRESQL_KIND_MULTIRANGE: return postgresql_multirange_value(reading, span, type->element);
    case POSTGRESQL_KIND_RECORD: return postgresql_composite_value(reading, span, Qnil);
    case POSTGRESQL_KIND_COMPOSITE:
        if (postgresql_same_fields(span, type->extra)) return postgresql_composite_value(reading, span, type->extra);
        postgresql_type_wanted(reading->protocol, oid);
        reading->incomplete = true;
        return Qnil;
    case POSTGRESQL_KIND_DOMAIN: return postgresql_inner_value(reading, span, type->element);
    case POSTGRESQL_KIND_HSTORE: return postgresql_hstore_value(reading, span);
    case POSTGRESQL_KIND_VECTOR: return postgresql_vector_value(reading, span);
    case POSTGRESQL_KIND_MONEY:
    case POSTGRESQL_KIND_SERVER: return server_value(reading, span, oid, type->kind);
    default: return postgresql_geometry_value(reading, span, type->kind);
    }
}

VALUE postgresql_value(struct postgresql_reading *reading, struct pg_span span, uint32_t oid,
                       const struct postgresql_type *type)
{
    if (!span.at) return Qnil;
    if (type->kind == POSTGRESQL_KIND_UNKNOWN) {
        reading->incomplete = true;
        return Qnil;
    }
    bool converts = !NIL_P(type->convert) && !reading->protocol->undecoded;
    if (type->kind < POSTGRESQL_KIND_RUBY && !converts) return plain_value(reading, span, type->kind);
    if (converts && reading->protocol->base.state == DB_PROTOCOL_IN_EXCHANGE) {
        // The program's own code runs after the exchange: what it raises must not break off the exchange.
        reading->incomplete = true;
        return Qnil;
    }
    postgresql_check_value(reading, ++reading->depth <= NESTED_MOST);
    VALUE value = type->kind < POSTGRESQL_KIND_RUBY ? plain_value(reading, span, type->kind)
                                                    : ruby_value(reading, span, oid, type);
    reading->depth--;
    if (!converts || reading->incomplete) return value;
    return rb_funcall(type->convert, id_call, 1, value);
}

// The most bytes of a value's text. Ruby's time to convert a number grows with the square of its digits.
static size_t longest_text(enum postgresql_kind kind)
{
    enum { NUMBER = 20, FLOAT_OR_TIME = 64, NUMERIC = 1 + 131072 + 1 + 16383 };
    switch (kind) {
    case POSTGRESQL_KIND_INT2:
    case POSTGRESQL_KIND_INT4:
    case POSTGRESQL_KIND_INT8:
    case POSTGRESQL_KIND_UINT4:
    case POSTGRESQL_KIND_UINT8: return NUMBER;
    case POSTGRESQL_KIND_FLOAT4:
    case POSTGRESQL_KIND_FLOAT8:
    case POSTGRESQL_KIND_TIMESTAMPTZ:
    case POSTGRESQL_KIND_DATE:
    case POSTGRESQL_KIND_TIMESTAMP: return FLOAT_OR_TIME;
    case POSTGRESQL_KIND_NUMERIC: return NUMERIC;
    default: return SIZE_MAX;
    }
}

// Reads a value of a simple Query, which has no binary values.
static VALUE text_value(struct postgresql_protocol *protocol, struct pg_span span, enum postgresql_kind kind,
                        uint32_t oid)
{
    if (!span.at) return Qnil;
    if (span.length > longest_text(kind)) db_protocol_violated(&protocol->base, "sent a malformed value");
    switch (kind) {
    case POSTGRESQL_KIND_BOOL: return span.length && *span.at == 't' ? Qtrue : Qfalse;
    case POSTGRESQL_KIND_INT2:
    case POSTGRESQL_KIND_INT4:
    case POSTGRESQL_KIND_INT8:
    case POSTGRESQL_KIND_UINT4:
    case POSTGRESQL_KIND_UINT8: return rb_str_to_inum(postgresql_text_value(span), 10, 0);
    case POSTGRESQL_KIND_VOID: return Qnil;
    case POSTGRESQL_KIND_BYTES:
    case POSTGRESQL_KIND_FLOAT4:
    case POSTGRESQL_KIND_FLOAT8:
    case POSTGRESQL_KIND_TIMESTAMPTZ:
    case POSTGRESQL_KIND_DATE:
    case POSTGRESQL_KIND_TIMESTAMP:
        return rb_funcall(mValues, id_parse, 3, UINT2NUM(oid), postgresql_text_value(span),
                          protocol->local ? Qtrue : Qfalse);
    case POSTGRESQL_KIND_NUMERIC: return big_decimal(protocol, postgresql_text_value(span));
    default: return postgresql_text_value(span);
    }
}

// ---- rows

static VALUE column_value(struct postgresql_reading *reading, VALUE description, uint32_t index, struct pg_span span,
                          VALUE *waiting)
{
    const struct postgresql_column *column = &postgresql_columns_of(description)->columns[index];
    if (reading->protocol->textual) return span.at ? postgresql_text_value(span) : Qnil;
    if (reading->protocol->state == POSTGRESQL_SIMPLE)
        return text_value(reading->protocol, span, column->type.kind, column->oid);
    if (column->type.kind == POSTGRESQL_KIND_UNKNOWN) postgresql_column_known(reading->protocol, description, index);
    VALUE value = postgresql_value(reading, span, column->oid, &column->type);
    if (!reading->incomplete) return value;
    reading->incomplete = false;
    reading->depth = 0;
    VALUE fields[] = {Qnil, UINT2NUM(index), UINT2NUM(column->oid), values_bytes_of(span)};
    if (NIL_P(*waiting)) *waiting = rb_ary_new();
    rb_ary_push(*waiting, rb_ary_new_from_values(4, fields));
    return Qnil;
}

static void wait_for_types(struct postgresql_protocol *protocol, VALUE row, VALUE waiting)
{
    for (long i = 0; i < RARRAY_LEN(waiting); i++)
        rb_ary_store(RARRAY_AREF(waiting, i), 0, row);
    if (NIL_P(protocol->waiting)) {
        protocol->waiting = waiting;
    } else {
        rb_ary_concat(protocol->waiting, waiting);
    }
}

VALUE postgresql_row_values(struct postgresql_protocol *protocol, struct pg_message message, VALUE description)
{
    const struct postgresql_columns *columns = postgresql_columns_of(description);
    const uint8_t *p = message.p, *end = message.end;
    bool runs_ruby = !protocol->textual && (columns->copies || protocol->state == POSTGRESQL_SIMPLE);
    if (runs_ruby && NIL_P(protocol->apart)) {
        // Ruby code may let other threads run, and one of them may close the stream, which frees its buffer.
        protocol->row.length = 0;
        postgresql_check(pg_put_bytes(&protocol->row, p, (size_t)(end - p)));
        p = protocol->row.at;
        end = p + protocol->row.length;
    }
    struct pg_row row;
    if (!pg_row_begin(p, end, &row) || row.count != columns->count)
        db_protocol_violated(&protocol->base, "sent a row with other columns than it had described");
    VALUE gathered[ROW_GATHERED]; // on the stack, where the GC finds them
    VALUE array = columns->count > ROW_GATHERED ? rb_ary_new_capa((long)columns->count) : Qnil;
    VALUE waiting = Qnil;
    struct postgresql_reading reading = {.protocol = protocol, .value = postgresql_value};
    uint32_t count = 0;
    struct pg_span span;
    while (pg_row_next(&row, &span)) {
        gathered[count++] = column_value(&reading, description, row.index - 1, span, &waiting);
        if (count < ROW_GATHERED || NIL_P(array)) continue;
        rb_ary_cat(array, gathered, (long)count);
        count = 0;
    }
    if (!pg_row_complete(&row)) db_protocol_violated(&protocol->base, "sent a malformed row");
    if (NIL_P(array)) {
        array = rb_ary_new_from_values((long)count, gathered);
    } else if (count) {
        rb_ary_cat(array, gathered, (long)count);
    }
    if (!NIL_P(waiting)) wait_for_types(protocol, array, waiting);
    return array;
}

/* @api private protocol.settle_value([row, index, oid, bytes]) -> true or false: whether the row has its value now */
static VALUE settle_value(VALUE self, VALUE waiting)
{
    struct postgresql_protocol *protocol = postgresql_protocol_of(self);
    Check_Type(waiting, T_ARRAY);
    VALUE row = rb_ary_entry(waiting, 0), bytes = rb_ary_entry(waiting, 3);
    Check_Type(row, T_ARRAY);
    StringValue(bytes);
    struct postgresql_reading reading = {.protocol = protocol, .value = postgresql_value};
    struct pg_span span = {(const uint8_t *)RSTRING_PTR(bytes), (size_t)RSTRING_LEN(bytes)};
    VALUE value = postgresql_inner_value(&reading, span, NUM2UINT(rb_ary_entry(waiting, 2)));
    RB_GC_GUARD(bytes);
    if (reading.incomplete) return Qfalse;
    rb_ary_store(row, NUM2LONG(rb_ary_entry(waiting, 1)), value);
    return Qtrue;
}

void postgresql_values_define(void)
{
    id_parse = rb_intern("parse");
    id_big_decimal = rb_intern("BigDecimal");
    id_new = rb_intern("new");
    id_inet = rb_intern("inet");
    id_call = rb_intern("call");
    rb_define_method(postgresql_cProtocol, "settle_value", settle_value, 1);
    postgresql_values_time_define();
    postgresql_values_nested_define();
}

void postgresql_values_load_classes(void)
{
    mValues = db_class("Heddle::DB::PostgreSQL::Values");
    cDuration = db_class("Heddle::DB::Duration");
    postgresql_values_time_load_classes();
    postgresql_values_geometry_load_classes();
    postgresql_values_nested_load_classes();
}
