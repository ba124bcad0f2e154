// The values of a COPY in the binary form, by the types of its columns. The rest of the conversion to that form is in
// Ruby (lib/heddle/db/postgresql/binary_form.rb).
#include "db/postgresql/copy.h"
#include "db/postgresql/values.h"

#include "wire/postgresql/digits.h"
#include "wire/postgresql/values_network.h"
#include "wire/postgresql/values_numeric.h"
#include "wire/postgresql/values_time.h"

#include <math.h>

// Puts a value that a writer makes of text.
static enum pg_written put_made(struct pg_buffer *buffer, struct pg_span text,
                                enum pg_written (*write)(struct pg_buffer *, struct pg_span))
{
    size_t begin;
    enum pg_written written = pg_value_begin(buffer, &begin);
    if (!written) written = write(buffer, text);
    return written ? written : pg_value_end(buffer, begin);
}

static enum pg_written put_16(struct pg_buffer *buffer, uint16_t number)
{
    if (!pg_reserve(buffer, 6)) return PG_NO_ROOM;
    pg_put_32(buffer, 2);
    return pg_put_16(buffer, number);
}

static enum pg_written put_32(struct pg_buffer *buffer, uint32_t number)
{
    if (!pg_reserve(buffer, 8)) return PG_NO_ROOM;
    pg_put_32(buffer, 4);
    return pg_put_32(buffer, number);
}

static enum pg_written put_64(struct pg_buffer *buffer, uint64_t number)
{
    if (!pg_reserve(buffer, 12)) return PG_NO_ROOM;
    pg_put_32(buffer, 8);
    return pg_put_64(buffer, number);
}

static enum pg_written put_double(struct pg_buffer *buffer, double number)
{
    uint64_t bits;
    memcpy(&bits, &number, sizeof(bits));
    return put_64(buffer, bits);
}

static enum pg_written put_float(struct pg_buffer *buffer, float number)
{
    uint32_t bits;
    memcpy(&bits, &number, sizeof(bits));
    return put_32(buffer, bits);
}

// PG_MALFORMED for a value that is not plain.

static enum pg_written postgresql_put_string(struct pg_buffer *buffer, enum postgresql_kind kind, VALUE string)
{
    struct pg_span text = {(const uint8_t *)RSTRING_PTR(string), (size_t)RSTRING_LEN(string)};
    int encoding = rb_enc_get_index(string);
    if (kind == POSTGRESQL_KIND_BYTES || encoding == rb_ascii8bit_encindex()) return pg_put_value(buffer, text);
    if (encoding != rb_utf8_encindex() && encoding != rb_usascii_encindex()) return PG_MALFORMED;
    if (text.length && memchr(text.at, 0, text.length)) return PG_MALFORMED;
    switch (kind) {
    case POSTGRESQL_KIND_TEXT:
    case POSTGRESQL_KIND_ENUM:
    case POSTGRESQL_KIND_JSON: return pg_put_value(buffer, text);
    case POSTGRESQL_KIND_JSONB:
    case POSTGRESQL_KIND_VERSIONED: return put_made(buffer, text, pg_put_versioned);
    case POSTGRESQL_KIND_UUID: return put_made(buffer, text, pg_put_uuid);
    case POSTGRESQL_KIND_MACADDR: return put_made(buffer, text, pg_put_mac);
    case POSTGRESQL_KIND_BITS: return put_made(buffer, text, pg_put_bits);
    case POSTGRESQL_KIND_NUMERIC: return put_made(buffer, text, pg_put_numeric);
    default: return PG_MALFORMED;
    }
}

static enum pg_written copy_values_put_digits(struct pg_buffer *buffer, enum postgresql_kind kind,
                                              const uint8_t *digits, size_t length)
{
    struct pg_span text = {digits, length};
    if (kind == POSTGRESQL_KIND_NUMERIC) return put_made(buffer, text, pg_put_numeric);
    return kind == POSTGRESQL_KIND_TEXT ? pg_put_value(buffer, text) : PG_MALFORMED;
}

static enum pg_written put_integer(struct pg_buffer *buffer, enum postgresql_kind kind, int64_t number)
{
    uint8_t digits[PG_DIGITS_MOST];
    switch (kind) {
    case POSTGRESQL_KIND_INT2: return number == (int16_t)number ? put_16(buffer, (uint16_t)number) : PG_OUT_OF_RANGE;
    case POSTGRESQL_KIND_INT4: return number == (int32_t)number ? put_32(buffer, (uint32_t)number) : PG_OUT_OF_RANGE;
    case POSTGRESQL_KIND_UINT4: return number == (uint32_t)number ? put_32(buffer, (uint32_t)number) : PG_OUT_OF_RANGE;
    case POSTGRESQL_KIND_UINT8:
        if (number < 0) return PG_OUT_OF_RANGE;
        return put_64(buffer, (uint64_t)number);
    case POSTGRESQL_KIND_INT8: return put_64(buffer, (uint64_t)number);
    case POSTGRESQL_KIND_FLOAT4: return put_float(buffer, (float)number);
    case POSTGRESQL_KIND_FLOAT8: return put_double(buffer, (double)number);
    default: return copy_values_put_digits(buffer, kind, digits, pg_integer_digits((long)number, digits));
    }
}

static enum pg_written put_real(struct pg_buffer *buffer, enum postgresql_kind kind, double number)
{
    uint8_t digits[PG_DIGITS_MOST];
    if (kind == POSTGRESQL_KIND_FLOAT8) return put_double(buffer, number);
    if (kind == POSTGRESQL_KIND_FLOAT4) {
        float single = (float)number;
        bool fits = isfinite(number) ? isfinite(single) && (single != 0) == (number != 0) : true;
        return fits ? put_float(buffer, single) : PG_OUT_OF_RANGE;
    }
    size_t length = pg_float_digits(number, digits);
    return length ? copy_values_put_digits(buffer, kind, digits, length) : PG_MALFORMED;
}

static enum pg_written put_time(const struct postgresql_protocol *protocol, struct pg_buffer *buffer,
                                enum postgresql_kind kind, VALUE time)
{
    if (kind != POSTGRESQL_KIND_TIMESTAMPTZ && (kind != POSTGRESQL_KIND_TIMESTAMP || protocol->local))
        return PG_MALFORMED;
    struct timespec spec = rb_time_timespec(time);
    int64_t microseconds;
    if (__builtin_mul_overflow((int64_t)spec.tv_sec - PG_EPOCH_SECONDS, 1000000, &microseconds) ||
        __builtin_add_overflow(microseconds, spec.tv_nsec / 1000, &microseconds) || microseconds < PG_TIMESTAMP_LEAST ||
        microseconds > PG_TIMESTAMP_MOST)
        return PG_OUT_OF_RANGE;
    return put_64(buffer, (uint64_t)microseconds);
}

static enum pg_written put_truth(struct pg_buffer *buffer, enum postgresql_kind kind, bool truth)
{
    uint8_t byte = truth;
    if (kind == POSTGRESQL_KIND_TEXT)
        byte = truth ? 't' : 'f';
    else if (kind != POSTGRESQL_KIND_BOOL)
        return PG_MALFORMED;
    return pg_put_value(buffer, (struct pg_span){&byte, 1});
}

static enum pg_written put_plain(const struct postgresql_protocol *protocol, struct pg_buffer *buffer,
                                 enum postgresql_kind kind, VALUE value)
{
    if (NIL_P(value)) return pg_put_null(buffer);
    if (FIXNUM_P(value)) return put_integer(buffer, kind, FIX2LONG(value));
    if (RB_FLOAT_TYPE_P(value)) return put_real(buffer, kind, RFLOAT_VALUE(value));
    if (value == Qtrue || value == Qfalse) return put_truth(buffer, kind, value == Qtrue);
    if (SYMBOL_P(value)) value = rb_sym2str(value);
    if (RB_TYPE_P(value, T_STRING)) return postgresql_put_string(buffer, kind, value);
    if (RTEST(rb_obj_is_kind_of(value, rb_cTime))) return put_time(protocol, buffer, kind, value);
    return PG_MALFORMED;
}

bool postgresql_copy_put_plain(const struct postgresql_protocol *protocol, struct pg_buffer *buffer,
                               enum postgresql_kind kind, VALUE value, enum pg_written *written)
{
    size_t begin = buffer->length;
    *written = put_plain(protocol, buffer, kind, value);
    RB_GC_GUARD(value);
    if (*written != PG_MALFORMED && *written != PG_OUT_OF_RANGE) return true;
    buffer->length = begin;
    return false;
}

/* @api private protocol.plain_bytes(value, kind) -> String or nil: the value in the binary form; nil for one that Ruby
 * code must convert or refuse */
static VALUE plain_bytes(VALUE self, VALUE value, VALUE kind)
{
    enum { HEAD = 4, MOST = 96 << 10 }; // of a value that is longer than its text, a numeric with an exponent
    const struct postgresql_protocol *protocol = postgresql_protocol_of(self);
    size_t room = 64 + (RB_TYPE_P(value, T_STRING) ? 2 * (size_t)RSTRING_LEN(value) : 0);
    for (;;) {
        VALUE bytes = rb_str_new(NULL, (long)room);
        struct pg_buffer buffer = {.at = (uint8_t *)RSTRING_PTR(bytes), .capacity = room};
        enum pg_written written;
        if (!postgresql_copy_put_plain(protocol, &buffer, (enum postgresql_kind)NUM2INT(kind), value, &written))
            return Qnil;
        RB_GC_GUARD(bytes);
        if (written == PG_WRITTEN) return rb_str_substr(bytes, HEAD, (long)buffer.length - HEAD);
        if (written != PG_NO_ROOM || room >= MOST) postgresql_check(written);
        room = MOST;
    }
}

// ---- values that were read

VALUE postgresql_copy_typed_row(struct postgresql_protocol *protocol, VALUE tuple, VALUE described)
{
    const struct postgresql_columns *columns = postgresql_columns_of(described);
    struct postgresql_reading reading = {.value = postgresql_value, .protocol = protocol};
    const uint8_t *p = (const uint8_t *)RSTRING_PTR(tuple);
    struct pg_row row;
    struct pg_span value;
    if (!pg_row_begin(p, p + RSTRING_LEN(tuple), &row) || row.count != columns->count)
        db_protocol_violated(&protocol->base, "sent a malformed row");
    VALUE values = rb_ary_new_capa(row.count);
    while (pg_row_next(&row, &value)) {
        const struct postgresql_column *column = &columns->columns[row.index - 1];
        rb_ary_push(values, postgresql_value(&reading, value, column->oid, &column->type));
        if (reading.incomplete)
            db_protocol_violated(&protocol->base, "sent a value of another type than it had described");
    }
    if (!pg_row_complete(&row)) db_protocol_violated(&protocol->base, "sent a malformed row");
    RB_GC_GUARD(tuple);
    RB_GC_GUARD(described);
    return values;
}

void postgresql_copy_values_define(void)
{
    rb_define_method(postgresql_cProtocol, "plain_bytes", plain_bytes, 2);
}
