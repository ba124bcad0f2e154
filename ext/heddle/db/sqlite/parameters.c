// Binds Ruby values to a statement's parameters. SQLite has integers, floats, texts and bytes; dates and times are
// texts that compare as they should, in the form that SQLite's own date functions take.
#include "db/sqlite/database.h"

#include "db/result.h"

#include <math.h>
#include <ruby/encoding.h>

static VALUE cDate, cDateTime, cBigDecimal, cDuration, mCalendar;
static ID id_to_s, id_to_f, id_to_i, id_year, id_month, id_day, id_hour, id_min, id_sec, id_nsec, id_getlocal, id_utc,
    id_to_time, id_time, id_gregorian, id_finite, id_infinite, id_big_decimal, id_exponent, id_frac, id_zero,
    id_bit_length;

static bool sqlite_is_a(VALUE value, VALUE klass)
{
    return RTEST(rb_obj_is_kind_of(value, klass));
}

RBIMPL_ATTR_NORETURN()
static void sqlite_refuse(VALUE value)
{
    if (RB_TYPE_P(value, T_ARRAY))
        rb_raise(rb_eTypeError,
                 "an Array cannot be bound to one parameter: write one ? for each of its values, as in (?, ?, ?), "
                 "and pass them with a *: query(sql, *values)");
    rb_raise(rb_eTypeError,
             "a value of the class %" PRIsVALUE
             " cannot be bound to a parameter: pass a String, a number, true, false, nil, a Date, "
             "a Time, a BigDecimal or a Heddle::DB::Duration",
             rb_obj_class(value));
}

static VALUE text_value(VALUE value)
{
    rb_encoding *encoding = rb_enc_get(value);
    if (encoding == rb_ascii8bit_encoding()) return value;
    if (encoding != rb_utf8_encoding() && rb_enc_str_coderange(value) != ENC_CODERANGE_7BIT)
        value = rb_str_encode(value, rb_enc_from_encoding(rb_utf8_encoding()), 0, Qnil); // raises if that is impossible
    if (rb_enc_str_coderange(value) == ENC_CODERANGE_BROKEN)
        rb_raise(rb_eArgError, "cannot bind a String that is not valid UTF-8 to a parameter: pass bytes (String#b), or "
                               "repair it");
    return value;
}

static int year_of(VALUE value)
{
    VALUE number = rb_funcall(value, id_year, 0);
    int year = FIXNUM_P(number) ? (int)FIX2LONG(number) : -1;
    if (!FIXNUM_P(number) || FIX2LONG(number) < 0 || FIX2LONG(number) > 9999)
        rb_raise(rb_eArgError, "cannot bind %" PRIsVALUE " to a parameter: years go from 0 to 9999", value);
    return year;
}

static int part(VALUE value, ID name)
{
    return NUM2INT(rb_funcall(value, name, 0));
}

static VALUE date_text(VALUE value)
{
    value = rb_funcall(mCalendar, id_gregorian, 1, value);
    return rb_enc_sprintf(rb_utf8_encoding(), "%04d-%02d-%02d", year_of(value), part(value, id_month),
                          part(value, id_day));
}

static VALUE time_text(struct sqlite_database *database, VALUE value)
{
    value = database->local ? rb_funcall(value, id_getlocal, 0) : rb_funcall(rb_obj_dup(value), id_utc, 0);
    VALUE text =
        rb_enc_sprintf(rb_utf8_encoding(), "%04d-%02d-%02d %02d:%02d:%02d", year_of(value), part(value, id_month),
                       part(value, id_day), part(value, id_hour), part(value, id_min), part(value, id_sec));
    int nanoseconds = part(value, id_nsec);
    if (nanoseconds % 1000) return rb_str_catf(text, ".%09d", nanoseconds);
    return nanoseconds ? rb_str_catf(text, ".%06d", nanoseconds / 1000) : text;
}

// As text that SQLite takes for no number: a column of numbers would make 1e400 infinite, and 1e-400 zero. The reader
// knows the form, and so does BigDecimal().
static VALUE beyond_range(VALUE value)
{
    VALUE text = rb_funcall(value, id_to_s, 0); // written out, 1e999999999 has a gigabyte
    const char *digits = RSTRING_PTR(text);
    bool negative = *digits == '-';
    VALUE marked = rb_enc_sprintf(rb_utf8_encoding(), "%s0_%s", negative ? "-" : "", digits + negative);
    RB_GC_GUARD(text);
    return marked;
}

// A text would compare as larger than every number. So a decimal is a number where that loses nothing.
static VALUE decimal_value(VALUE value)
{
    if (!RTEST(rb_funcall(value, id_finite, 0))) {
        if (!NIL_P(rb_funcall(value, id_infinite, 0))) return rb_funcall(value, id_to_f, 0); // as it is read
        rb_raise(rb_eArgError, "cannot bind %" PRIsVALUE " to a parameter: SQLite has no such decimal", value);
    }
    enum { MOST = 309, LEAST = -323 }; // 0.1e310 is infinite, 0.1e-324 is zero
    long exponent = NUM2LONG(rb_funcall(value, id_exponent, 0));
    if (exponent > MOST || exponent < LEAST) return beyond_range(value);
    if (RTEST(rb_funcall(rb_funcall(value, id_frac, 0), id_zero, 0))) {
        VALUE integer = rb_funcall(value, id_to_i, 0);
        if (NUM2LONG(rb_funcall(integer, id_bit_length, 0)) < 64) return integer;
    }
    VALUE number = rb_funcall(value, id_to_f, 0);
    if (isinf(RFLOAT_VALUE(number)) || RFLOAT_VALUE(number) == 0.0) return beyond_range(value);
    VALUE again = rb_funcall(rb_mKernel, id_big_decimal, 1, rb_obj_as_string(number));
    return rb_equal(again, value) ? number : rb_funcall(value, id_to_s, 1, rb_str_new_cstr("F"));
}

VALUE sqlite_storable(struct sqlite_database *database, VALUE value)
{
    if (NIL_P(value) || RB_INTEGER_TYPE_P(value)) return value;
    if (RB_TYPE_P(value, T_STRING)) return text_value(value);
    if (RB_FLOAT_TYPE_P(value)) {
        if (isnan(RFLOAT_VALUE(value)))
            rb_raise(rb_eArgError, "cannot bind NaN to a parameter: SQLite would store NULL");
        return value;
    }
    if (value == Qtrue || value == Qfalse) return INT2FIX(value == Qtrue);
    if (SYMBOL_P(value)) return text_value(rb_sym2str(value));
    if (sqlite_is_a(value, rb_cTime)) return time_text(database, value);
    if (sqlite_is_a(value, cBigDecimal)) return decimal_value(value);
    if (sqlite_is_a(value, cDateTime)) return time_text(database, rb_funcall(mCalendar, id_time, 1, value));
    if (sqlite_is_a(value, cDate)) return date_text(value);
    if (sqlite_is_a(value, cDuration)) return rb_funcall(value, id_to_s, 0);
    VALUE time = rb_check_funcall(value, id_to_time, 0, NULL); // such as ActiveSupport::TimeWithZone
    if (time == Qundef || !sqlite_is_a(time, rb_cTime)) sqlite_refuse(value);
    return time_text(database, time);
}

int64_t sqlite_integer(VALUE value)
{
    if (FIXNUM_P(value)) return FIX2LONG(value);
    int64_t number;
    int sign = rb_integer_pack(value, &number, 1, sizeof(number), 0,
                               INTEGER_PACK_LSWORD_FIRST | INTEGER_PACK_NATIVE_BYTE_ORDER | INTEGER_PACK_2COMP);
    if (sign < -1 || sign > 1 || (sign < 0) != (number < 0))
        rb_raise(rb_eArgError, "cannot bind %" PRIsVALUE " to a parameter: SQLite's integers have 64 bits", value);
    return number;
}

static int bind_one(struct sqlite_database *database, sqlite3_stmt *at, int index, VALUE value)
{
    value = sqlite_storable(database, value);
    if (NIL_P(value)) return SQLITE_OK; // as after clear_bindings
    if (RB_INTEGER_TYPE_P(value)) return sqlite_api.bind_int64(at, index, sqlite_integer(value));
    if (RB_FLOAT_TYPE_P(value)) return sqlite_api.bind_double(at, index, RFLOAT_VALUE(value));
    const char *bytes = RSTRING_PTR(value);
    uint64_t length = (uint64_t)RSTRING_LEN(value);
    bool binary = rb_enc_get(value) == rb_ascii8bit_encoding();
    // Copied: while the statement runs, others may run and change the String.
    int code = binary ? sqlite_api.bind_blob64(at, index, bytes, length, SQLITE_TRANSIENT)
                      : sqlite_api.bind_text64(at, index, bytes, length, SQLITE_TRANSIENT, SQLITE_UTF8);
    RB_GC_GUARD(value);
    return code;
}

void sqlite_bind(struct sqlite_database *database, struct sqlite_statement *statement, VALUE arguments)
{
    Check_Type(arguments, T_ARRAY);
    long count = RARRAY_LEN(arguments);
    if (count != statement->parameters)
        rb_raise(rb_eArgError, "wrong number of values for the statement (given %ld, expected %d)", count,
                 statement->parameters);
    for (long i = 0; i < count; i++) {
        if (RARRAY_LEN(arguments) != count)
            rb_raise(rb_eRuntimeError, "the arguments were changed while they were bound");
        int code = bind_one(database, statement->at, (int)i + 1, RARRAY_AREF(arguments, i));
        if (code == SQLITE_NOMEM) rb_memerror();
        if (code != SQLITE_OK)
            rb_raise(rb_eArgError, "cannot bind argument %ld to a parameter: %s", i + 1, sqlite_api.errstr(code));
    }
}

void sqlite_parameters_define(void)
{
    id_to_s = rb_intern("to_s");
    id_to_f = rb_intern("to_f");
    id_to_i = rb_intern("to_i");
    id_year = rb_intern("year");
    id_month = rb_intern("month");
    id_day = rb_intern("day");
    id_hour = rb_intern("hour");
    id_min = rb_intern("min");
    id_sec = rb_intern("sec");
    id_nsec = rb_intern("nsec");
    id_getlocal = rb_intern("getlocal");
    id_utc = rb_intern("utc");
    id_to_time = rb_intern("to_time");
    id_time = rb_intern("time");
    id_gregorian = rb_intern("gregorian");
    id_finite = rb_intern("finite?");
    id_infinite = rb_intern("infinite?");
    id_bit_length = rb_intern("bit_length");
    id_big_decimal = rb_intern("BigDecimal");
    id_exponent = rb_intern("exponent");
    id_frac = rb_intern("frac");
    id_zero = rb_intern("zero?");
}

void sqlite_parameters_load_classes(void)
{
    cDate = db_class("Date");
    cDateTime = db_class("DateTime");
    cBigDecimal = db_class("BigDecimal");
    cDuration = db_class("Heddle::DB::Duration");
    mCalendar = db_class("Heddle::DB::Calendar");
}
