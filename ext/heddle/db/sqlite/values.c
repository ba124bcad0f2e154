// The values of rows as Ruby objects. SQLite stores a type with each value; a column's declared type says what a number
// or a text stands for. A value that does not look like its column's type stays as it is stored.
#include "db/sqlite/database.h"

#include <ruby/encoding.h>

#include <limits.h>
#include <string.h>

// Values of a row that are read before they are appended to an Array.
enum { ROW_GATHERED = 64 };

static VALUE cDate, cDuration, mCalendar;
static ID id_jd, id_day, id_big_decimal, id_new, id_local;

// ---- declared types

// Words at the start of declared types, with what follows a word boundary.
static const struct {
    const char *word;
    enum sqlite_kind kind;
} KINDS[] = {
    {"boolean", SQLITE_AS_BOOLEAN},    {"bool", SQLITE_AS_BOOLEAN},         {"datetime", SQLITE_AS_DATETIME},
    {"timestamp", SQLITE_AS_DATETIME}, {"timestamptz", SQLITE_AS_DATETIME}, {"date", SQLITE_AS_DATE},
    {"time", SQLITE_AS_TIME},          {"decimal", SQLITE_AS_DECIMAL},      {"numeric", SQLITE_AS_DECIMAL},
};

enum sqlite_kind sqlite_kind_of(const char *declared)
{
    if (!declared) return SQLITE_AS_STORED;
    size_t length = strcspn(declared, " (_");
    for (size_t i = 0; i < sizeof(KINDS) / sizeof(*KINDS); i++) {
        if (strlen(KINDS[i].word) == length && strncasecmp(declared, KINDS[i].word, length) == 0) return KINDS[i].kind;
    }
    return SQLITE_AS_STORED;
}

// ---- texts of dates and times

// Takes `digits` digits.
static bool sqlite_take(const char **p, const char *end, int digits, int *number)
{
    if (end - *p < digits) return false;
    *number = 0;
    for (int i = 0; i < digits; i++) {
        char digit = (*p)[i];
        if (digit < '0' || digit > '9') return false;
        *number = *number * 10 + digit - '0';
    }
    *p += digits;
    return true;
}

static bool take_char(const char **p, const char *end, char expected)
{
    if (*p == end || **p != expected) return false;
    ++*p;
    return true;
}

// Days from 1970-01-01 in the Gregorian calendar. The algorithm is Howard Hinnant's "days_from_civil".
static int64_t days_of(int year, int month, int day)
{
    year -= month <= 2;
    int64_t era = (year >= 0 ? year : year - 399) / 400;
    int64_t of_era = year - era * 400;
    int64_t of_year = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;
    return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

static int days_in(int year, int month)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return days[month - 1] + (month == 2 && leap);
}

struct moment {
    int year, month, day, hour, minute, second;
    long nanosecond;
};

static bool take_date(const char **p, const char *end, struct moment *moment)
{
    return sqlite_take(p, end, 4, &moment->year) && take_char(p, end, '-') && sqlite_take(p, end, 2, &moment->month) &&
           take_char(p, end, '-') && sqlite_take(p, end, 2, &moment->day) && moment->month >= 1 &&
           moment->month <= 12 && moment->day >= 1 && moment->day <= days_in(moment->year, moment->month);
}

static bool take_time(const char **p, const char *end, struct moment *moment)
{
    if (!sqlite_take(p, end, 2, &moment->hour) || !take_char(p, end, ':') || !sqlite_take(p, end, 2, &moment->minute))
        return false;
    moment->second = 0;
    moment->nanosecond = 0;
    if (take_char(p, end, ':')) {
        if (!sqlite_take(p, end, 2, &moment->second)) return false;
        if (take_char(p, end, '.')) {
            long unit = 100000000;
            int digit;
            if (!sqlite_take(p, end, 1, &digit)) return false;
            do {
                moment->nanosecond += digit * unit;
                unit /= 10;
            } while (sqlite_take(p, end, 1, &digit));
        }
    }
    return moment->hour <= 23 && moment->minute <= 59 && moment->second <= 59;
}

// Z or +hh:mm. Returns false for anything else; `*zone` tells whether there was one.
static bool take_zone(const char **p, const char *end, bool *zone, int *minutes)
{
    int hour = 0, minute = 0;
    *zone = *p < end;
    *minutes = 0;
    if (!*zone || take_char(p, end, 'Z')) return true;
    take_char(p, end, ' ');
    int sign = take_char(p, end, '-') ? -1 : 1;
    if (sign > 0 && !take_char(p, end, '+')) return false;
    if (!sqlite_take(p, end, 2, &hour)) return false;
    take_char(p, end, ':');
    if (!sqlite_take(p, end, 2, &minute)) return false;
    *minutes = sign * (hour * 60 + minute);
    return true;
}

static VALUE date_of(const char *text, int length)
{
    const char *p = text, *end = text + length;
    struct moment moment;
    if (!take_date(&p, end, &moment) || p != end) return Qundef;
    VALUE day = LL2NUM(days_of(moment.year, moment.month, moment.day) + 2440588);
    if (moment.year < 1583) return rb_funcall(mCalendar, id_day, 1, day);
    return rb_funcall(cDate, id_jd, 1, day);
}

static VALUE datetime_of(const struct sqlite_database *database, const char *text, int length)
{
    const char *p = text, *end = text + length;
    struct moment moment = {0};
    bool zone;
    int minutes;
    if (!take_date(&p, end, &moment)) return Qundef;
    if (p < end && !((take_char(&p, end, ' ') || take_char(&p, end, 'T')) && take_time(&p, end, &moment)))
        return Qundef;
    if (!take_zone(&p, end, &zone, &minutes) || p != end) return Qundef;
    if (!zone && database->local)
        return rb_funcall(rb_cTime, id_local, 7, INT2FIX(moment.year), INT2FIX(moment.month), INT2FIX(moment.day),
                          INT2FIX(moment.hour), INT2FIX(moment.minute), INT2FIX(moment.second),
                          rb_rational_new(LONG2NUM(moment.nanosecond), INT2FIX(1000)));
    int64_t of_day = (moment.hour * 60 + moment.minute - minutes) * 60 + moment.second;
    struct timespec spec = {.tv_sec = (time_t)(days_of(moment.year, moment.month, moment.day) * 86400 + of_day),
                            .tv_nsec = moment.nanosecond};
    return rb_time_timespec_new(&spec, database->local ? INT_MAX : INT_MAX - 1); // INT_MAX - 1: UTC
}

static VALUE time_of(const char *text, int length)
{
    const char *p = text, *end = text + length;
    struct moment moment;
    if (!take_time(&p, end, &moment) || p != end) return Qundef;
    int64_t seconds = (moment.hour * 60 + moment.minute) * 60 + moment.second;
    return rb_funcall(cDuration, id_new, 1, LL2NUM(seconds * 1000000 + moment.nanosecond / 1000));
}

// Whether BigDecimal takes the text for a number.
static bool is_number(const char *text, int length)
{
    const char *p = text, *end = text + length;
    int digit, digits = 0;
    if (!take_char(&p, end, '-')) take_char(&p, end, '+');
    if (end - p > 2 && p[0] == '0' && p[1] == '_') p += 2; // see beyond_range in db/sqlite/parameters.c
    for (; sqlite_take(&p, end, 1, &digit); digits++) {
    }
    if (take_char(&p, end, '.')) {
        for (; sqlite_take(&p, end, 1, &digit); digits++) {
        }
    }
    if (digits && (take_char(&p, end, 'e') || take_char(&p, end, 'E'))) {
        if (!take_char(&p, end, '-')) take_char(&p, end, '+');
        for (digits = 0; sqlite_take(&p, end, 1, &digit); digits++) {
        }
    }
    return digits && p == end && length < 1000;
}

// ---- values

VALUE sqlite_column_text(const void *bytes, int length)
{
    return rb_utf8_str_new(bytes ? bytes : "", length);
}

static VALUE decimal(VALUE text)
{
    return rb_funcall(rb_mKernel, id_big_decimal, 1, text);
}

static VALUE sqlite_text_of(const struct sqlite_database *database, enum sqlite_kind kind, const char *text, int length)
{
    VALUE value = Qundef;
    switch (kind) {
    case SQLITE_AS_DATE: value = date_of(text, length); break;
    case SQLITE_AS_DATETIME: value = datetime_of(database, text, length); break;
    case SQLITE_AS_TIME: value = time_of(text, length); break;
    case SQLITE_AS_DECIMAL:
        if (is_number(text, length)) value = decimal(rb_utf8_str_new(text, length));
        break;
    default: break;
    }
    return value == Qundef ? sqlite_column_text(text, length) : value;
}

static enum sqlite_kind kind_at(const struct sqlite_database *database, const struct sqlite_statement *statement,
                                int column)
{
    return database->stored ? SQLITE_AS_STORED : statement->kinds[column];
}

// While Ruby code runs here (dates, decimals) SQLite is reserved for this call, and the row stays where it is.
static VALUE sqlite_value_of(const struct sqlite_database *database, sqlite3_stmt *at, int column,
                             enum sqlite_kind kind)
{
    const void *bytes;
    switch (sqlite_api.column_type(at, column)) {
    case SQLITE_INTEGER: {
        int64_t integer = sqlite_api.column_int64(at, column);
        if (kind == SQLITE_AS_STORED) return LL2NUM(integer);
        if (kind == SQLITE_AS_BOOLEAN && (integer == 0 || integer == 1)) return integer ? Qtrue : Qfalse;
        return kind == SQLITE_AS_DECIMAL ? decimal(LL2NUM(integer)) : LL2NUM(integer);
    }
    case SQLITE_FLOAT: {
        VALUE number = DBL2NUM(sqlite_api.column_double(at, column));
        // The shortest text that stands for the number is the one that was stored: SQLite keeps 15 digits.
        return kind == SQLITE_AS_DECIMAL ? decimal(rb_obj_as_string(number)) : number;
    }
    case SQLITE_TEXT:
        bytes = sqlite_api.column_text(at, column);
        if (!bytes) rb_memerror();
        return sqlite_text_of(database, kind, bytes, sqlite_api.column_bytes(at, column));
    case SQLITE_BLOB:
        bytes = sqlite_api.column_blob(at, column);
        return rb_str_new(bytes ? bytes : "", sqlite_api.column_bytes(at, column));
    default: return Qnil;
    }
}

VALUE sqlite_row(struct sqlite_database *database, struct sqlite_statement *statement)
{
    VALUE gathered[ROW_GATHERED]; // on the stack, where the GC finds them
    int columns = statement->columns;
    if (columns <= ROW_GATHERED) {
        for (int i = 0; i < columns; i++)
            gathered[i] = sqlite_value_of(database, statement->at, i, kind_at(database, statement, i));
        return rb_ary_new_from_values(columns, gathered);
    }
    VALUE row = rb_ary_new_capa(columns);
    for (int i = 0; i < columns; i++)
        rb_ary_push(row, sqlite_value_of(database, statement->at, i, kind_at(database, statement, i)));
    return row;
}

void sqlite_values_define(void)
{
    id_jd = rb_intern("jd");
    id_day = rb_intern("day");
    id_big_decimal = rb_intern("BigDecimal");
    id_new = rb_intern("new");
    id_local = rb_intern("local");
}

void sqlite_values_load_classes(void)
{
    cDate = rb_path2class("Date");
    cDuration = rb_path2class("Heddle::DB::Duration");
    rb_gc_register_mark_object(cDate);
    mCalendar = rb_path2class("Heddle::DB::Calendar");
    rb_gc_register_mark_object(cDuration);
    rb_gc_register_mark_object(mCalendar);
}
