// Ruby values as the parameters of a statement.
#include "client.h"
#include "text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// A type for values up to so many characters or bytes, a long one for others; what drivers call VARCHAR ends there.
enum { VARCHAR_MOST = 4000 };

enum { INTEGER_DIGITS = 10, BIGINT_DIGITS = 19, DOUBLE_DIGITS = 15, DECIMAL_MOST = 1000 };

static VALUE mParameters;
static ID id_form;

RBIMPL_ATTR_NORETURN()
static void without_memory(void)
{
    rb_raise(rb_eNoMemError, "no memory for the values of a statement");
}

static void odbc_append(struct odbc_parameters *parameters, const void *from, size_t length)
{
    if (!odbc_buffer_append(&parameters->bytes, from, length)) without_memory();
}

static struct odbc_value *add(struct odbc_parameters *parameters, SQLSMALLINT c_type, SQLSMALLINT type, SQLULEN size)
{
    if (parameters->count == parameters->capacity) {
        size_t capacity = parameters->capacity ? parameters->capacity * 2 : 8;
        struct odbc_value *values = realloc(parameters->values, capacity * sizeof *values);
        if (!values) without_memory();
        parameters->values = values;
        parameters->capacity = capacity;
    }
    if (!odbc_buffer_align(&parameters->bytes)) without_memory();
    struct odbc_value *value = &parameters->values[parameters->count++];
    *value = (struct odbc_value){
        .c_type = c_type, .type = type, .size = size > 0 ? size : 1, .offset = parameters->bytes.length};
    return value;
}

static void odbc_put(struct odbc_parameters *parameters, SQLSMALLINT c_type, SQLSMALLINT type, SQLULEN size,
                     const void *from, size_t length)
{
    add(parameters, c_type, type, size)->length = (SQLLEN)length;
    odbc_append(parameters, from, length);
}

// Digits as text, which every driver turns into its own exact numbers.
static void odbc_put_digits(struct odbc_parameters *parameters, VALUE text, long precision, long scale)
{
    if (precision > DECIMAL_MOST)
        rb_raise(rb_eArgError, "cannot bind a number of %ld digits to a parameter: the limit is %d", precision,
                 DECIMAL_MOST);
    odbc_put(parameters, SQL_C_CHAR, SQL_DECIMAL, (SQLULEN)precision, RSTRING_PTR(text), (size_t)RSTRING_LEN(text));
    parameters->values[parameters->count - 1].digits = (SQLSMALLINT)scale;
    RB_GC_GUARD(text);
}

static void put_integer(struct odbc_parameters *parameters, VALUE value)
{
    if (FIXNUM_P(value) && FIX2LONG(value) >= INT32_MIN && FIX2LONG(value) <= INT32_MAX) {
        // Every driver has this type. PostgreSQL's sends a larger one as a text, where the statement gives it no type.
        SQLINTEGER number = (SQLINTEGER)FIX2LONG(value);
        odbc_put(parameters, SQL_C_SLONG, SQL_INTEGER, INTEGER_DIGITS, &number, sizeof number);
        return;
    }
    if (FIXNUM_P(value) || rb_absint_numwords(value, 63, NULL) <= 1) {
        SQLBIGINT number = NUM2LL(value);
        odbc_put(parameters, SQL_C_SBIGINT, SQL_BIGINT, BIGINT_DIGITS, &number, sizeof number);
        return;
    }
    VALUE text = rb_big2str(value, 10);
    odbc_put_digits(parameters, text, RSTRING_LEN(text) - (RSTRING_PTR(text)[0] == '-'), 0);
}

static void put_float(struct odbc_parameters *parameters, VALUE value)
{
    SQLDOUBLE number = RFLOAT_VALUE(value);
    if (!isfinite(number))
        rb_raise(rb_eArgError, "cannot bind %" PRIsVALUE " to a parameter: ODBC has no such number", value);
    odbc_put(parameters, SQL_C_DOUBLE, SQL_DOUBLE, DOUBLE_DIGITS, &number, sizeof number);
}

// In the encoding that the driver gets.
static VALUE encoded(const struct odbc_client *client, VALUE string)
{
    rb_encoding *encoding = client->session->wide ? rb_utf8_encoding() : client->encoding;
    if (rb_enc_get(string) != encoding && rb_enc_str_coderange(string) != ENC_CODERANGE_7BIT)
        string = rb_str_encode(string, rb_enc_from_encoding(encoding), 0, Qnil); // raises if that is impossible
    if (rb_enc_str_coderange(string) == ENC_CODERANGE_BROKEN)
        rb_raise(rb_eArgError, "this String is not valid %s: pass bytes (String#b) to a parameter, or repair it",
                 rb_enc_name(encoding));
    if (client->ends_at_nul && memchr(RSTRING_PTR(string), 0, (size_t)RSTRING_LEN(string)))
        rb_raise(rb_eArgError,
                 "this String contains a NUL, where the driver would end the text: pass bytes (String#b)");
    return string;
}

void odbc_put_text(const struct odbc_client *client, struct odbc_buffer *buffer, VALUE string)
{
    string = encoded(client, string);
    const char *at = RSTRING_PTR(string);
    size_t length = (size_t)RSTRING_LEN(string);
    buffer->length = 0;
    bool good = client->session->wide ? odbc_append_wide(buffer, at, length) : odbc_buffer_append(buffer, at, length);
    // Some drivers read up to a NUL in spite of the length.
    if (!good || !odbc_buffer_append(buffer, "\0", 2)) without_memory();
    buffer->length -= 2;
    RB_GC_GUARD(string);
}

static void put_text(const struct odbc_client *client, struct odbc_parameters *parameters, VALUE value)
{
    value = encoded(client, value);
    size_t characters = (size_t)RSTRING_LEN(value); // at least as many as there are
    bool is_long = characters > VARCHAR_MOST;
    if (!client->session->wide) {
        odbc_put(parameters, SQL_C_CHAR, is_long ? SQL_LONGVARCHAR : SQL_VARCHAR, characters, RSTRING_PTR(value),
                 characters);
    } else {
        struct odbc_value *entry = add(parameters, SQL_C_WCHAR, is_long ? SQL_WLONGVARCHAR : SQL_WVARCHAR, characters);
        size_t before = parameters->bytes.length;
        if (!odbc_append_wide(&parameters->bytes, RSTRING_PTR(value), characters)) without_memory();
        entry->length = (SQLLEN)(parameters->bytes.length - before);
    }
    RB_GC_GUARD(value);
}

static void put_bytes(struct odbc_parameters *parameters, VALUE value)
{
    size_t length = (size_t)RSTRING_LEN(value);
    odbc_put(parameters, SQL_C_BINARY, length > VARCHAR_MOST ? SQL_LONGVARBINARY : SQL_VARBINARY, length,
             RSTRING_PTR(value), length);
    RB_GC_GUARD(value);
}

static long part(VALUE form, long index)
{
    return NUM2LONG(rb_ary_entry(form, index));
}

// What parameters.rb has made of a value: its C type, and what that takes.
static void put_form(const struct odbc_client *client, struct odbc_parameters *parameters, VALUE form)
{
    Check_Type(form, T_ARRAY);
    switch (part(form, 0)) {
    case SQL_C_TYPE_DATE: {
        SQL_DATE_STRUCT date = {(SQLSMALLINT)part(form, 1), (SQLUSMALLINT)part(form, 2), (SQLUSMALLINT)part(form, 3)};
        enum { DATE_LENGTH = 10 };
        odbc_put(parameters, SQL_C_TYPE_DATE, SQL_TYPE_DATE, DATE_LENGTH, &date, sizeof date);
        break;
    }
    case SQL_C_TYPE_TIMESTAMP: {
        SQL_TIMESTAMP_STRUCT time = {
            (SQLSMALLINT)part(form, 1),  (SQLUSMALLINT)part(form, 2), (SQLUSMALLINT)part(form, 3),
            (SQLUSMALLINT)part(form, 4), (SQLUSMALLINT)part(form, 5), (SQLUSMALLINT)part(form, 6),
            (SQLUINTEGER)part(form, 7),
        };
        enum { TIMESTAMP_LENGTH = 26, FRACTION_DIGITS = 6 }; // "yyyy-mm-dd hh:mm:ss.ffffff"
        odbc_put(parameters, SQL_C_TYPE_TIMESTAMP, SQL_TYPE_TIMESTAMP, TIMESTAMP_LENGTH, &time, sizeof time);
        parameters->values[parameters->count - 1].digits = FRACTION_DIGITS;
        break;
    }
    case SQL_C_NUMERIC: odbc_put_digits(parameters, rb_ary_entry(form, 1), part(form, 2), part(form, 3)); break;
    default: put_text(client, parameters, rb_ary_entry(form, 1));
    }
}

static void odbc_put_value(const struct odbc_client *client, struct odbc_parameters *parameters, VALUE value)
{
    if (NIL_P(value)) {
        add(parameters, client->session->wide ? SQL_C_WCHAR : SQL_C_CHAR, SQL_VARCHAR, 1)->length = SQL_NULL_DATA;
    } else if (RB_INTEGER_TYPE_P(value)) {
        put_integer(parameters, value);
    } else if (RB_FLOAT_TYPE_P(value)) {
        put_float(parameters, value);
    } else if (RB_TYPE_P(value, T_STRING)) {
        if (rb_enc_get(value) == rb_ascii8bit_encoding())
            put_bytes(parameters, value);
        else
            put_text(client, parameters, value);
    } else if (SYMBOL_P(value)) {
        put_text(client, parameters, rb_sym2str(value));
    } else if (value == Qtrue || value == Qfalse) {
        unsigned char bit = value == Qtrue;
        odbc_put(parameters, SQL_C_BIT, SQL_BIT, 1, &bit, 1);
    } else {
        VALUE form = rb_funcall(mParameters, id_form, 2, value, client->local ? Qtrue : Qfalse);
        put_form(client, parameters, form);
        RB_GC_GUARD(form);
    }
}

void odbc_put_parameters(const struct odbc_client *client, struct odbc_parameters *parameters, VALUE values)
{
    parameters->count = 0;
    parameters->bytes.length = 0;
    for (long i = 0; i < RARRAY_LEN(values); i++)
        odbc_put_value(client, parameters, rb_ary_entry(values, i));
}

void odbc_parameters_define(VALUE module)
{
    mParameters = rb_define_module_under(module, "Parameters");
    rb_gc_register_mark_object(mParameters);
    id_form = rb_intern("form");
}
