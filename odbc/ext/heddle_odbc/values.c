// Fetched rows as Ruby values.
#include "client.h"
#include "text.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static VALUE cDate, mCalendar, mTexts;
static ID id_civil, id_date, id_timestamp, id_duration, id_local, id_big_decimal;

VALUE odbc_text(const struct odbc_client *client, const char *at, size_t length)
{
    if (!client->session->wide) return rb_enc_str_new(at, (long)length, client->encoding);
    VALUE string = rb_str_buf_new((long)(length / 2 * 3)); // before the pointer: this may start the GC
    size_t bytes = odbc_narrow(RSTRING_PTR(string), (const uint16_t *)at, length / 2);
    rb_str_set_len(string, (long)bytes);
    rb_enc_associate(string, rb_utf8_encoding());
    return bytes < length / 2 * 3 - length / 2 ? rb_str_resize(string, (long)bytes) : string;
}

// Days since 1970-01-01 of a date of the Gregorian calendar. From "chrono-Compatible Low-Level Date Algorithms" by
// Howard Hinnant.
static int64_t days_of(int64_t year, unsigned month, unsigned day)
{
    year -= month <= 2;
    int64_t era = (year >= 0 ? year : year - 399) / 400;
    unsigned of_era = (unsigned)(year - era * 400);
    unsigned of_year = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;
    return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

// MySQL stores invalid dates: 0000-00-00, and, if its sql_mode allows, 2024-02-31.
static bool is_date(int64_t year, unsigned month, unsigned day)
{
    if (month < 1 || month > 12 || day < 1) return false;
    int64_t next = month == 12 ? days_of(year + 1, 1, 1) : days_of(year, month + 1, 1);
    return days_of(year, month, day) < next;
}

static VALUE date(const SQL_DATE_STRUCT *value)
{
    if (!is_date(value->year, value->month, value->day)) return Qnil;
    VALUE year = INT2FIX(value->year), month = INT2FIX(value->month), day = INT2FIX(value->day);
    if (value->year < 1583) return rb_funcall(mCalendar, id_date, 3, year, month, day);
    return rb_funcall(cDate, id_civil, 3, year, month, day);
}

static VALUE moment(const struct odbc_client *client, const SQL_TIMESTAMP_STRUCT *value)
{
    if (!is_date(value->year, value->month, value->day)) return Qnil;
    if (client->local) {
        VALUE microseconds = rb_rational_new(UINT2NUM(value->fraction), INT2FIX(1000));
        return rb_funcall(rb_cTime, id_local, 7, INT2FIX(value->year), INT2FIX(value->month), INT2FIX(value->day),
                          INT2FIX(value->hour), INT2FIX(value->minute), INT2FIX(value->second), microseconds);
    }
    enum { UTC = INT_MAX - 1 }; // rb_time_timespec_new's word for it
    int64_t seconds = ((days_of(value->year, value->month, value->day) * 24 + value->hour) * 60 + value->minute) * 60;
    struct timespec time = {.tv_sec = (time_t)(seconds + value->second), .tv_nsec = (long)value->fraction};
    return rb_time_timespec_new(&time, UTC);
}

static VALUE timestamp(const struct odbc_client *client, const SQL_TIMESTAMP_STRUCT *value)
{
    // PostgreSQL's driver: 44 BC, which is the year -43, is -44 there, and -infinity is 9999 BC.
    if (value->year < 0 && client->session->abilities.dates_as_text) {
        if (value->year == -9999) return DBL2NUM(-HUGE_VAL);
        SQL_TIMESTAMP_STRUCT counted = *value;
        counted.year++;
        return moment(client, &counted);
    }
    return moment(client, value);
}

// Drivers disagree on the case; RFC 9562, 4: a UUID is written in lower case.
static VALUE uuid(const char *at, size_t length)
{
    VALUE string = rb_usascii_str_new(at, (long)length);
    char *p = RSTRING_PTR(string);
    for (size_t i = 0; i < length; i++)
        if (p[i] >= 'A' && p[i] <= 'F') p[i] += 'a' - 'A';
    return string;
}

// A number if it is one.
static VALUE loose(const struct odbc_client *client, const char *at, size_t length)
{
    char *end;
    enum { LONGEST = 64 };
    char digits[LONGEST];
    if (length > 0 && length < LONGEST) {
        memcpy(digits, at, length);
        digits[length] = 0;
    }
    if (length > 0 && length < LONGEST && strspn(digits, "+-0123456789.eE") == length) {
        errno = 0;
        long long number = strtoll(digits, &end, 10);
        if (*end == 0 && errno == 0) return LL2NUM(number);
        double real = strtod(digits, &end);
        if (*end == 0) return DBL2NUM(real);
    }
    return rb_enc_str_new(at, (long)length, client->encoding);
}

static VALUE narrow_text(const struct odbc_client *client, const char *at, size_t length)
{
    return rb_enc_str_new(at, (long)length, client->encoding);
}

// What a text stands for in a column of that kind; the number or the text itself if it stands for nothing else. A date
// of a database that has no others is one that its driver could not read.
static VALUE of_text(const struct odbc_client *client, enum odbc_kind kind, const char *at, size_t length)
{
    VALUE text = narrow_text(client, at, length), value = Qnil;
    switch (kind) {
    case ODBC_DATE:
        value = rb_funcall(mTexts, id_date, 1, text);
        if (NIL_P(value) && !client->session->abilities.loose)
            rb_raise(rb_eRangeError,
                     "the driver cannot read a date (infinity, or a year above 9999): select it as a text (::text)");
        break;
    case ODBC_TIMESTAMP: value = rb_funcall(mTexts, id_timestamp, 2, text, client->local ? Qtrue : Qfalse); break;
    case ODBC_TIME: // which some drivers round to seconds
        value = rb_funcall(mTexts, id_duration, 1, text);
        break;
    case ODBC_BOOLEAN:
        if (length == 1 && (*at == '0' || *at == '1')) return *at == '1' ? Qtrue : Qfalse;
        break;
    default:
        value = loose(client, at, length);
        if (kind == ODBC_FLOAT && RB_INTEGER_TYPE_P(value)) return rb_to_float(value);
    }
    RB_GC_GUARD(text);
    return NIL_P(value) ? loose(client, at, length) : value;
}

static VALUE odbc_value_of(const struct odbc_client *client, const struct odbc_column *column, const char *at,
                           SQLLEN length)
{
    size_t bytes = (size_t)length;
    bool narrow = column->c_type == SQL_C_CHAR;
    switch (column->kind) {
    case ODBC_INTEGER: return LL2NUM(*(const SQLBIGINT *)at);
    case ODBC_UNSIGNED: return ULL2NUM(*(const SQLUBIGINT *)at);
    case ODBC_FLOAT: return narrow ? of_text(client, column->kind, at, bytes) : DBL2NUM(*(const SQLDOUBLE *)at);
    case ODBC_BOOLEAN: return narrow ? of_text(client, column->kind, at, bytes) : *at ? Qtrue : Qfalse;
    case ODBC_DECIMAL: return rb_funcall(rb_mKernel, id_big_decimal, 1, rb_usascii_str_new(at, length));
    case ODBC_DATE: return narrow ? of_text(client, column->kind, at, bytes) : date((const SQL_DATE_STRUCT *)at);
    case ODBC_TIMESTAMP:
        return narrow ? of_text(client, column->kind, at, bytes) : timestamp(client, (const SQL_TIMESTAMP_STRUCT *)at);
    case ODBC_TIME: return of_text(client, column->kind, at, bytes);
    case ODBC_BYTES: return rb_str_new(at, length);
    case ODBC_UUID: return uuid(at, bytes);
    case ODBC_LOOSE: return loose(client, at, bytes);
    case ODBC_TEXT: break;
    }
    return column->c_type == SQL_C_WCHAR ? odbc_text(client, at, bytes) : narrow_text(client, at, bytes);
}

VALUE odbc_take_rows(const struct odbc_client *client, struct odbc_statement *statement, size_t limit)
{
    size_t count = statement->row_count - statement->taken;
    if (count > limit) count = limit;
    VALUE rows = rb_ary_new_capa((long)count);
    for (size_t i = 0; i < count; i++) {
        VALUE row = rb_ary_new_capa(statement->column_count);
        size_t position = statement->position;
        for (SQLSMALLINT c = 0; c < statement->column_count; c++) {
            SQLLEN length;
            memcpy(&length, statement->rows.at + position, sizeof length);
            position += sizeof length;
            VALUE value = Qnil;
            if (length != SQL_NULL_DATA) {
                value = odbc_value_of(client, &statement->columns[c], statement->rows.at + position, length);
                position += ((size_t)length + 7) / 8 * 8;
            }
            rb_ary_push(row, value);
        }
        // Only now: a value that raises leaves its row.
        statement->position = position;
        statement->taken++;
        rb_ary_push(rows, row);
    }
    return rows;
}

void odbc_values_define(void)
{
    cDate = rb_path2class("Date");
    rb_gc_register_mark_object(cDate);
    mCalendar = rb_path2class("Heddle::DB::Calendar");
    mTexts = rb_path2class("Heddle::DB::ODBC::Texts");
    rb_gc_register_mark_object(mTexts);
    rb_gc_register_mark_object(mCalendar);
    id_civil = rb_intern("civil");
    id_date = rb_intern("date");
    id_timestamp = rb_intern("timestamp");
    id_duration = rb_intern("duration");
    id_local = rb_intern("local");
    id_big_decimal = rb_intern("BigDecimal");
}
