// Writes Ruby values as a statement's binary parameters.
#include "db/mysql/protocol.h"

#include <math.h>
#include <string.h>

// Digits of a DECIMAL.
enum { DECIMAL_DIGITS = 65 };

// Bytes of COM_STMT_EXECUTE in front of the bits for NULL.
enum { EXECUTE_HEAD = 10 };

// The longest TIME in either direction, in microseconds: 838:59:59.999999.
#define LONGEST_TIME INT64_C(3020399999999)

static VALUE cDate, cDateTime, cBigDecimal, cDuration, mCalendar;
static ID id_to_s, id_year, id_month, id_day, id_hour, id_min, id_sec, id_getlocal, id_to_time, id_time, id_gregorian,
    id_microseconds, id_exponent;

static void put_little(struct mysql_bytes *bytes, uint64_t number, size_t count)
{
    mysql_bytes_reserve(bytes, count);
    mysql_put_little(bytes->at + bytes->length, number, count);
    bytes->length += count;
}

static void mysql_put_string(struct mysql_bytes *bytes, const void *from, size_t length)
{
    mysql_bytes_reserve(bytes, 9 + length);
    bytes->length += mysql_put_number(bytes->at + bytes->length, length);
    mysql_bytes_append(bytes, from, length);
}

RBIMPL_ATTR_NORETURN()
static void too_large(VALUE value)
{
    rb_raise(rb_eArgError,
             "cannot bind this %" PRIsVALUE
             " to a parameter: it has more than %d digits before its point, and the server's DECIMAL would store "
             "another number",
             rb_obj_class(value), DECIMAL_DIGITS);
}

static uint16_t put_integer(struct mysql_bytes *bytes, VALUE value)
{
    uint64_t words[2];
    int sign = FIXNUM_P(value)
                   ? 0
                   : rb_integer_pack(value, words, 2, 8, 0,
                                     INTEGER_PACK_LSWORD_FIRST | INTEGER_PACK_NATIVE_BYTE_ORDER | INTEGER_PACK_2COMP);
    if (FIXNUM_P(value)) {
        put_little(bytes, (uint64_t)FIX2LONG(value), 8);
        return MYSQL_LONGLONG;
    }
    bool small = (sign == 1 && words[1] == 0) || (sign == -1 && words[1] == UINT64_MAX && (int64_t)words[0] < 0);
    if (small) {
        put_little(bytes, words[0], 8);
        return sign == 1 && words[0] > INT64_MAX ? MYSQL_LONGLONG | 0x8000 : MYSQL_LONGLONG;
    }
    // The server would silently replace the number by its largest one.
    if (rb_absint_numwords(value, 8, NULL) > 27) too_large(value);
    VALUE digits = rb_big2str(value, 10);
    if (RSTRING_LEN(digits) - (sign < 0) > DECIMAL_DIGITS) too_large(value);
    mysql_put_string(bytes, RSTRING_PTR(digits), (size_t)RSTRING_LEN(digits));
    RB_GC_GUARD(digits);
    return MYSQL_NEWDECIMAL;
}

static uint16_t put_text(struct mysql_protocol *protocol, struct mysql_bytes *bytes, VALUE value)
{
    rb_encoding *encoding = rb_enc_get(value);
    bool raw = protocol->encoding == rb_ascii8bit_encoding(); // text is passed on as bytes
    bool binary = encoding == rb_ascii8bit_encoding();
    if (!binary && !raw && encoding != protocol->encoding && rb_enc_str_coderange(value) != ENC_CODERANGE_7BIT)
        value = rb_str_encode(value, rb_enc_from_encoding(protocol->encoding), 0, Qnil); // raises if that is impossible
    if (!binary && !raw && rb_enc_str_coderange(value) == ENC_CODERANGE_BROKEN)
        rb_raise(rb_eArgError,
                 "cannot bind a String that is not valid %s to a parameter: pass bytes (String#b), or repair it",
                 rb_enc_name(protocol->encoding));
    mysql_put_string(bytes, RSTRING_PTR(value), (size_t)RSTRING_LEN(value));
    RB_GC_GUARD(value);
    return binary ? MYSQL_BLOB : MYSQL_VAR_STRING;
}

static uint16_t put_float(struct mysql_bytes *bytes, VALUE value)
{
    double number = RFLOAT_VALUE(value);
    if (!isfinite(number))
        rb_raise(rb_eArgError, "cannot bind %" PRIsVALUE " to a parameter: the server has no such number", value);
    uint64_t bits;
    memcpy(&bits, &number, 8);
    put_little(bytes, bits, 8);
    return MYSQL_DOUBLE;
}

static uint16_t put_date(struct mysql_bytes *bytes, VALUE value)
{
    value = rb_funcall(mCalendar, id_gregorian, 1, value);
    int year = NUM2INT(rb_funcall(value, id_year, 0));
    if (year < 0 || year > 9999)
        rb_raise(rb_eArgError, "cannot bind %" PRIsVALUE " to a parameter: years go from 0 to 9999", value);
    put_little(bytes, 4, 1);
    put_little(bytes, (uint64_t)year, 2);
    put_little(bytes, NUM2UINT(rb_funcall(value, id_month, 0)), 1);
    put_little(bytes, NUM2UINT(rb_funcall(value, id_day, 0)), 1);
    return MYSQL_DATE;
}

// Converts days since 1970-01-01 to a year, month and day: the inverse of mysql_days, by the same author.
static void civil(int64_t days, int64_t *year, unsigned *month, unsigned *day)
{
    days += 719468;
    int64_t era = (days >= 0 ? days : days - 146096) / 146097;
    unsigned of_era = (unsigned)(days - era * 146097);
    unsigned years = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    unsigned of_year = of_era - (365 * years + years / 4 - years / 100);
    unsigned shifted = (5 * of_year + 2) / 153;
    *day = of_year - (153 * shifted + 2) / 5 + 1;
    *month = shifted < 10 ? shifted + 3 : shifted - 9;
    *year = years + era * 400 + (*month <= 2);
}

static uint16_t put_time(struct mysql_protocol *protocol, struct mysql_bytes *bytes, VALUE value)
{
    struct timespec spec = rb_time_timespec(value);
    int64_t year;
    unsigned month, day, hour, minute, second;
    if (protocol->local) {
        value = rb_funcall(value, id_getlocal, 0);
        year = NUM2LL(rb_funcall(value, id_year, 0));
        month = NUM2UINT(rb_funcall(value, id_month, 0));
        day = NUM2UINT(rb_funcall(value, id_day, 0));
        hour = NUM2UINT(rb_funcall(value, id_hour, 0));
        minute = NUM2UINT(rb_funcall(value, id_min, 0));
        second = NUM2UINT(rb_funcall(value, id_sec, 0));
    } else {
        int64_t days = spec.tv_sec / 86400, rest = spec.tv_sec % 86400;
        if (rest < 0) rest += 86400, days--;
        civil(days, &year, &month, &day);
        hour = (unsigned)rest / 3600;
        minute = (unsigned)rest / 60 % 60;
        second = (unsigned)rest % 60;
    }
    if (year < 0 || year > 9999)
        rb_raise(rb_eArgError, "cannot bind %" PRIsVALUE " to a parameter: years go from 0 to 9999", value);
    put_little(bytes, 11, 1);
    put_little(bytes, (uint64_t)year, 2);
    put_little(bytes, month | day << 8 | hour << 16 | minute << 24, 4);
    put_little(bytes, second, 1);
    put_little(bytes, (uint64_t)spec.tv_nsec / 1000, 4);
    return MYSQL_DATETIME;
}

static uint16_t put_duration(struct mysql_bytes *bytes, VALUE value)
{
    VALUE number = rb_funcall(value, id_microseconds, 0);
    int64_t all = FIXNUM_P(number) ? FIX2LONG(number) : INT64_MAX;
    if (all > LONGEST_TIME || all < -LONGEST_TIME)
        rb_raise(rb_eArgError,
                 "cannot bind %" PRIsVALUE " to a parameter: the server's TIME goes from -838:59:59 to 838:59:59",
                 value);
    uint64_t microseconds = all < 0 ? (uint64_t)-all : (uint64_t)all;
    uint64_t seconds = microseconds / 1000000;
    put_little(bytes, 12, 1);
    put_little(bytes, all < 0, 1);
    put_little(bytes, seconds / 86400, 4);
    put_little(bytes, seconds / 3600 % 24, 1);
    put_little(bytes, seconds / 60 % 60, 1);
    put_little(bytes, seconds % 60, 1);
    put_little(bytes, microseconds % 1000000, 4);
    return MYSQL_TIME;
}

static bool mysql_is_a(VALUE value, VALUE klass)
{
    return RTEST(rb_obj_is_kind_of(value, klass));
}

static uint16_t put_decimal(struct mysql_bytes *bytes, VALUE value)
{
    // Checked first: 1e70000 has 70001 digits. The exponent of NaN, infinities and 0 is 0.
    int64_t exponent = NUM2LL(rb_funcall(value, id_exponent, 0));
    if (exponent > DECIMAL_DIGITS) too_large(value);
    if (exponent < -DECIMAL_DIGITS)
        rb_raise(rb_eArgError,
                 "cannot bind a BigDecimal below 1e-%d to a parameter: the server's DECIMAL would store 0",
                 DECIMAL_DIGITS);
    VALUE digits = rb_funcall(value, id_to_s, 1, rb_str_new_cstr("F"));
    if (!rb_isdigit(RSTRING_PTR(digits)[RSTRING_LEN(digits) - 1]))
        rb_raise(rb_eArgError, "cannot bind %" PRIsVALUE " to a parameter: the server has no such number", digits);
    mysql_put_string(bytes, RSTRING_PTR(digits), (size_t)RSTRING_LEN(digits));
    RB_GC_GUARD(digits);
    return MYSQL_NEWDECIMAL;
}

RBIMPL_ATTR_NORETURN()
static void mysql_refuse(VALUE value)
{
    if (RB_TYPE_P(value, T_ARRAY) && RARRAY_LEN(value) == 0)
        rb_raise(rb_eTypeError,
                 "an empty Array cannot be bound to a parameter: skip the query, because no value is in an empty list");
    if (RB_TYPE_P(value, T_ARRAY))
        rb_raise(rb_eTypeError,
                 "an Array cannot be bound to one parameter: write one ? for each of its values, as in (?, ?, ?), "
                 "and pass them with a *: query(sql, *values)");
    rb_raise(rb_eTypeError,
             "a value of the class %" PRIsVALUE
             " cannot be bound to a parameter: pass a String, a number, true, false, nil, a Date, a Time, "
             "a BigDecimal or a Heddle::DB::Duration",
             rb_obj_class(value));
}

// For objects that represent a time but are no Time, such as ActiveSupport::TimeWithZone.
static uint16_t put_other(struct mysql_protocol *protocol, struct mysql_bytes *bytes, VALUE value)
{
    VALUE time = rb_check_funcall(value, id_to_time, 0, NULL);
    if (time == Qundef || !mysql_is_a(time, rb_cTime)) mysql_refuse(value);
    return put_time(protocol, bytes, time);
}

// Returns the type, including the bit for unsigned.
static uint16_t put_value(struct mysql_protocol *protocol, struct mysql_bytes *bytes, VALUE value)
{
    if (RB_INTEGER_TYPE_P(value)) return put_integer(bytes, value);
    if (RB_TYPE_P(value, T_STRING)) return put_text(protocol, bytes, value);
    if (RB_FLOAT_TYPE_P(value)) return put_float(bytes, value);
    if (value == Qtrue || value == Qfalse) {
        put_little(bytes, value == Qtrue, 1);
        return MYSQL_TINY;
    }
    if (SYMBOL_P(value)) return put_text(protocol, bytes, rb_sym2str(value));
    if (mysql_is_a(value, rb_cTime)) return put_time(protocol, bytes, value);
    if (mysql_is_a(value, cBigDecimal)) return put_decimal(bytes, value);
    if (mysql_is_a(value, cDateTime)) return put_time(protocol, bytes, rb_funcall(mCalendar, id_time, 1, value));
    if (mysql_is_a(value, cDate)) return put_date(bytes, value);
    if (mysql_is_a(value, cDuration)) return put_duration(bytes, value);
    return put_other(protocol, bytes, value);
}

void mysql_build_execute(struct mysql_protocol *protocol, struct mysql_bytes *bytes, uint32_t id, VALUE arguments,
                         bool cursor)
{
    size_t count = (size_t)RARRAY_LEN(arguments);
    bytes->length = 0;
    put_little(bytes, MYSQL_EXECUTE, 1);
    put_little(bytes, id, 4);
    put_little(bytes, cursor, 1); // 1: read-only cursor
    put_little(bytes, 1, 4);      // iteration count
    if (count == 0) return;
    if (count > UINT16_MAX)
        rb_raise(rb_eArgError, "cannot bind %zu parameters: a statement has at most %d", count, UINT16_MAX);
    size_t nulls = bytes->length, types = nulls + (count + 7) / 8 + 1;
    mysql_bytes_reserve(bytes, types - nulls + 2 * count);
    memset(bytes->at + nulls, 0, types - nulls + 2 * count);
    bytes->at[types - 1] = 1; // the types follow
    bytes->length = types + 2 * count;
    for (size_t i = 0; i < count; i++) {
        VALUE value = RARRAY_AREF(arguments, (long)i);
        uint16_t type = MYSQL_NULL;
        if (NIL_P(value)) {
            bytes->at[nulls + i / 8] |= (uint8_t)(1u << (i % 8));
        } else {
            type = put_value(protocol, bytes, value);
        }
        bytes->at[types + 2 * i] = (uint8_t)type;
        bytes->at[types + 2 * i + 1] = (uint8_t)(type >> 8);
        if ((size_t)RARRAY_LEN(arguments) != count)
            rb_raise(rb_eRuntimeError, "the arguments were changed while the query was built");
    }
}

void mysql_built_for(struct mysql_protocol *protocol, uint32_t id)
{
    mysql_put_little(protocol->request.at + 1, id, 4);
}

uint8_t *mysql_built_types(struct mysql_protocol *protocol, size_t count)
{
    return protocol->request.at + EXECUTE_HEAD + (count + 7) / 8 + 1;
}

void mysql_parameters_define(void)
{
    id_to_s = rb_intern("to_s");
    id_year = rb_intern("year");
    id_month = rb_intern("month");
    id_day = rb_intern("day");
    id_hour = rb_intern("hour");
    id_min = rb_intern("min");
    id_sec = rb_intern("sec");
    id_getlocal = rb_intern("getlocal");
    id_to_time = rb_intern("to_time");
    id_time = rb_intern("time");
    id_gregorian = rb_intern("gregorian");
    id_exponent = rb_intern("exponent");
    id_microseconds = rb_intern("microseconds");
}

void mysql_parameters_load_classes(void)
{
    cDate = db_class("Date");
    cDateTime = db_class("DateTime");
    mCalendar = db_class("Heddle::DB::Calendar");
    cBigDecimal = db_class("BigDecimal");
    cDuration = db_class("Heddle::DB::Duration");
}
