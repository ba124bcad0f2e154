// Binds values to the parameters of a statement. The class of a value determines its type, as for the literal: an
// Integer is an int4, int8 or numeric by its size, a Float is a float8. Text has no type of its own: the server infers
// it from the statement, as for a quoted literal. (psycopg 3 does the same.)
#include "db/postgresql/protocol.h"

#include <string.h>

static VALUE mParameters;
static ID id_convert, id_settled;

// ---- making arguments ready

static VALUE utf8_text(VALUE value, long number)
{
    rb_encoding *encoding = rb_enc_get(value);
    if (encoding != rb_utf8_encoding() && rb_enc_str_coderange(value) != ENC_CODERANGE_7BIT)
        value = rb_str_encode(value, rb_enc_from_encoding(rb_utf8_encoding()), 0, Qnil); // raises what cannot be
    if (rb_enc_str_coderange(value) == ENC_CODERANGE_BROKEN)
        rb_raise(rb_eArgError, "argument %ld has a String that is not valid UTF-8: it is bytes (String#b), or damaged",
                 number);
    if (memchr(RSTRING_PTR(value), 0, (size_t)RSTRING_LEN(value)))
        rb_raise(rb_eArgError,
                 "argument %ld has a String with a NUL, which no text of PostgreSQL may have: it is bytes "
                 "(String#b), or damaged",
                 number);
    return rb_str_new_frozen(value);
}

static uint32_t integer_type(VALUE value)
{
    if (FIXNUM_P(value)) {
        long number = FIX2LONG(value);
        return number >= INT32_MIN && number <= INT32_MAX ? POSTGRESQL_INT4 : POSTGRESQL_INT8;
    }
    uint64_t words[2];
    int sign = rb_integer_pack(value, words, 2, 8, 0,
                               INTEGER_PACK_LSWORD_FIRST | INTEGER_PACK_NATIVE_BYTE_ORDER | INTEGER_PACK_2COMP);
    bool small = (sign == 1 && words[1] == 0 && words[0] <= INT64_MAX) ||
                 (sign == -1 && words[1] == UINT64_MAX && (int64_t)words[0] < 0);
    return small ? POSTGRESQL_INT8 : POSTGRESQL_NUMERIC;
}

// The value as it is sent, and its type. An Array has bytes in the type's binary form.
static VALUE ready_value(struct postgresql_protocol *protocol, VALUE value, long number, bool converted, uint32_t *type)
{
    *type = POSTGRESQL_ANY;
    if (NIL_P(value)) return value;
    if (RB_INTEGER_TYPE_P(value)) {
        *type = integer_type(value);
        return *type == POSTGRESQL_NUMERIC ? rb_big2str(value, 10) : value;
    }
    if (RB_FLOAT_TYPE_P(value)) {
        *type = POSTGRESQL_FLOAT8;
        return value;
    }
    if (value == Qtrue || value == Qfalse) {
        *type = POSTGRESQL_BOOL;
        return value;
    }
    if (SYMBOL_P(value)) value = rb_sym2str(value);
    if (RB_TYPE_P(value, T_STRING)) {
        if (rb_enc_get(value) != rb_ascii8bit_encoding()) return utf8_text(value, number);
        *type = POSTGRESQL_BYTEA;
        return rb_str_new_frozen(value);
    }
    // Ruby code converts the other classes: [type, text]; TypeError for a class that it does not know.
    VALUE pair = rb_funcall(mParameters, id_convert, 3, value, protocol->local ? Qtrue : Qfalse, LONG2NUM(number));
    Check_Type(pair, T_ARRAY);
    if (RARRAY_LEN(pair) == 1) { // what a registered class makes of it
        if (converted)
            rb_raise(rb_eTypeError, "argument %ld has a registered class, whose encode: returned another", number);
        return ready_value(protocol, RARRAY_AREF(pair, 0), number, true, type);
    }
    *type = NUM2UINT(rb_ary_entry(pair, 0));
    VALUE text = rb_ary_entry(pair, 1);
    StringValue(text);
    if (RARRAY_LEN(pair) == 3) return rb_obj_freeze(rb_ary_new_from_args(1, rb_str_new_frozen(text)));
    return utf8_text(text, number);
}

// Whether the class of a value always says its type.
static bool decided(VALUE value)
{
    return RB_SPECIAL_CONST_P(value) || RB_TYPE_P(value, T_STRING) || RB_FLOAT_TYPE_P(value) ||
           RB_TYPE_P(value, T_BIGNUM) || rb_obj_class(value) == rb_cTime;
}

static bool all_decided(VALUE arguments)
{
    for (long i = 0; i < RARRAY_LEN(arguments); i++)
        if (!decided(RARRAY_AREF(arguments, i))) return false;
    return true;
}

bool postgresql_arguments_doubtful(VALUE protocol, VALUE arguments)
{
    if (all_decided(arguments)) return false;
    return RTEST(rb_funcall(mParameters, rb_intern("doubtful?"), 2, protocol, arguments));
}

VALUE postgresql_settled(VALUE protocol, VALUE sql, VALUE arguments, VALUE prepared)
{
    Check_Type(arguments, T_ARRAY);
    if (all_decided(arguments)) return arguments;
    return rb_funcall(mParameters, id_settled, 4, protocol, sql, arguments, prepared);
}

void postgresql_arguments(struct postgresql_protocol *protocol, VALUE arguments, struct postgresql_arguments *ready)
{
    Check_Type(arguments, T_ARRAY);
    long count = RARRAY_LEN(arguments);
    if (count > PG_PARAMETERS_MOST) postgresql_check(PG_TOO_MANY_PARAMETERS);
    ready->count = (size_t)count;
    ready->holder = 0;
    ready->types = ready->few;
    if (count > POSTGRESQL_FEW) {
        ready->holder = rb_str_tmp_new((long)sizeof(uint32_t) * count);
        ready->types = (uint32_t *)RSTRING_PTR(ready->holder);
    }
    ready->values = rb_ary_new_capa(count);
    for (long i = 0; i < count; i++) {
        VALUE value = ready_value(protocol, rb_ary_entry(arguments, i), i + 1, false, &ready->types[i]);
        rb_ary_push(ready->values, value);
    }
}

static bool fits(VALUE value, uint32_t type)
{
    if (type == POSTGRESQL_INT8) return true;
    int64_t number = NUM2LL(value);
    if (type == POSTGRESQL_XID8) return number >= 0;
    return type == POSTGRESQL_INT4   ? number >= INT32_MIN && number <= INT32_MAX
           : type == POSTGRESQL_INT2 ? number >= INT16_MIN && number <= INT16_MAX
                                     : false;
}

bool postgresql_arguments_fit(const struct postgresql_arguments *ready, const uint32_t *declared, const uint32_t *types,
                              size_t count)
{
    if (ready->count != count) return false;
    for (size_t i = 0; i < count; i++) {
        VALUE value = RARRAY_AREF(ready->values, (long)i);
        if (NIL_P(value)) continue;
        uint32_t own = ready->types[i];
        if (own == POSTGRESQL_ANY ? declared[i] == POSTGRESQL_ANY : own == types[i]) continue;
        if (!RB_INTEGER_TYPE_P(value) || !fits(value, types[i])) return false;
    }
    return true;
}

// ---- writing

// Text is sent as text, whatever its type; the rest in binary.
static enum pg_format format_of(VALUE value, uint32_t type)
{
    return RB_TYPE_P(value, T_STRING) && type != POSTGRESQL_BYTEA ? PG_TEXT : PG_BINARY;
}

static enum pg_written put_number(struct pg_bind *bind, uint8_t *bytes, size_t length)
{
    return pg_bind_value(bind, (struct pg_span){bytes, length});
}

static enum pg_written parameters_put_value(struct pg_bind *bind, VALUE value, uint32_t type)
{
    uint8_t bytes[8];
    if (NIL_P(value)) return pg_bind_value(bind, (struct pg_span){NULL, 0});
    if (RB_TYPE_P(value, T_ARRAY)) value = RARRAY_AREF(value, 0);
    if (RB_TYPE_P(value, T_STRING))
        return pg_bind_value(bind, (struct pg_span){(const uint8_t *)RSTRING_PTR(value), (size_t)RSTRING_LEN(value)});
    if (RB_FLOAT_TYPE_P(value)) {
        double number = RFLOAT_VALUE(value);
        uint64_t bits;
        memcpy(&bits, &number, sizeof(bits));
        pg_store_64(bytes, bits);
        return put_number(bind, bytes, 8);
    }
    if (value == Qtrue || value == Qfalse) {
        bytes[0] = value == Qtrue;
        return put_number(bind, bytes, 1);
    }
    int64_t number = NUM2LL(value);
    size_t length = type == POSTGRESQL_INT8 || type == POSTGRESQL_XID8 ? 8 : type == POSTGRESQL_INT4 ? 4 : 2;
    pg_store_64(bytes, (uint64_t)number << (64 - 8 * length));
    return put_number(bind, bytes, length);
}

void postgresql_put_bind(struct postgresql_protocol *protocol, struct pg_span portal, struct pg_span statement,
                         const struct postgresql_arguments *ready, const uint32_t *types)
{
    const uint8_t results[] = {protocol->textual ? PG_TEXT : PG_BINARY};
    if (!types) types = ready->types;
    VALUE values = ready->values, holder = 0;
    uint8_t *formats = ALLOCV_N(uint8_t, holder, ready->count + 1);
    for (size_t i = 0; i < ready->count; i++)
        formats[i] = (uint8_t)format_of(RARRAY_AREF(values, (long)i), ready->types[i]);
    struct pg_bind bind;
    pg_bind_begin(&bind, &protocol->request, portal, statement, formats, ready->count, ready->count);
    for (size_t i = 0; i < ready->count; i++)
        parameters_put_value(&bind, RARRAY_AREF(values, (long)i), types[i]);
    enum pg_written written = pg_bind_end(&bind, results, 1);
    ALLOCV_END(holder);
    postgresql_check(written);
    RB_GC_GUARD(values);
}

void postgresql_parameters_define(void)
{
    id_convert = rb_intern("convert");
    id_settled = rb_intern("settled");
}

void postgresql_parameters_load_classes(void)
{
    mParameters = db_class("Heddle::DB::PostgreSQL::Parameters");
}
