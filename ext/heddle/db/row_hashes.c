// Rows of a database as Hashes. Values that came as text are converted on the way.
#include "db/row_hashes.h"

#include "heddle.h"

#include <string.h>

static ID id_call, id_big_decimal, id_local, id_utc, id_new;

// How a column's values are converted.
enum cast {
    CAST_NOTHING,
    CAST_CALL, // by an object that has a method call
    CAST_INTEGER,
    CAST_FLOAT,
    CAST_BOOLEAN,
    CAST_DECIMAL,
    CAST_DATE,
    CAST_TIME,
};

enum zone {
    ZONE_GIVEN, // the text's own
    ZONE_LOCAL, // that of this process
    ZONE_UTC,
};

struct caster {
    enum cast cast;
    VALUE call;           // for CAST_CALL, and for texts that the others do not read
    enum zone read, made; // of CAST_TIME: the zone of a text without an offset, and the zone of the Time
};

// ---- casts

static enum cast cast_named(VALUE name)
{
    static const struct {
        const char *name;
        enum cast cast;
    } names[] = {{"integer", CAST_INTEGER}, {"float", CAST_FLOAT}, {"boolean", CAST_BOOLEAN},
                 {"decimal", CAST_DECIMAL}, {"date", CAST_DATE},   {"time", CAST_TIME}};
    const char *wanted = rb_id2name(SYM2ID(name));
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (strcmp(names[i].name, wanted) == 0) return names[i].cast;
    rb_raise(rb_eArgError, "no conversion is called %s", wanted);
}

static enum zone zone_named(VALUE name)
{
    if (NIL_P(name)) return ZONE_GIVEN;
    return strcmp(rb_id2name(rb_to_id(name)), "utc") == 0 ? ZONE_UTC : ZONE_LOCAL;
}

// nil, a Symbol, an object with a method call, or [Symbol, such an object, zone that is read, zone that is made].
static struct caster caster_of(VALUE given)
{
    if (NIL_P(given)) return (struct caster){.cast = CAST_NOTHING, .call = Qnil};
    if (SYMBOL_P(given)) return (struct caster){.cast = cast_named(given), .call = Qnil};
    if (!RB_TYPE_P(given, T_ARRAY)) return (struct caster){.cast = CAST_CALL, .call = given};
    VALUE name = rb_ary_entry(given, 0);
    Check_Type(name, T_SYMBOL);
    return (struct caster){.cast = cast_named(name),
                           .call = rb_ary_entry(given, 1),
                           .read = zone_named(rb_ary_entry(given, 2)),
                           .made = zone_named(rb_ary_entry(given, 3))};
}

// ---- times: 2024-02-29 12:34:56.789+05:30

struct moment {
    int year, month, day, hour, minute, second, microsecond, offset;
    bool has_offset;
};

// Reads exactly that many digits; -1 if there are others.
static int digits(const char **p, const char *end, int count)
{
    if (end - *p < count) return -1;
    int number = 0;
    for (int i = 0; i < count; i++) {
        char c = *(*p)++;
        if (c < '0' || c > '9') return -1;
        number = 10 * number + (c - '0');
    }
    return number;
}

static bool letter(const char **p, const char *end, char wanted)
{
    return *p < end && *(*p)++ == wanted;
}

static bool read_fraction(const char **p, const char *end, int *microsecond)
{
    *microsecond = 0;
    if (*p == end || **p != '.') return true;
    int places = 0;
    for ((*p)++; *p < end && **p >= '0' && **p <= '9'; (*p)++, places++)
        if (places < 6) *microsecond = 10 * *microsecond + (**p - '0');
    for (int i = places; i < 6; i++)
        *microsecond *= 10;
    return places > 0;
}

static bool read_offset(const char **p, const char *end, struct moment *moment)
{
    moment->has_offset = *p < end;
    if (!moment->has_offset) return true;
    char sign = *(*p)++;
    if (sign != '+' && sign != '-') return false;
    int parts[3] = {0, 0, 0};
    for (int i = 0; i < 3; i++) {
        if (i && *p == end) break;
        if (i && !letter(p, end, ':')) return false;
        if ((parts[i] = digits(p, end, 2)) < 0) return false;
    }
    moment->offset = (parts[0] * 60 + parts[1]) * 60 + parts[2];
    if (sign == '-') moment->offset = -moment->offset;
    return *p == end;
}

static bool read_day(const char **p, const char *end, struct moment *moment)
{
    if ((moment->year = digits(p, end, 4)) < 0 || !letter(p, end, '-')) return false;
    if ((moment->month = digits(p, end, 2)) < 1 || !letter(p, end, '-')) return false;
    if ((moment->day = digits(p, end, 2)) < 1) return false;
    static const int days[] = {31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    if (moment->month > 12 || moment->day > days[moment->month - 1]) return false;
    bool leap = moment->year % 4 == 0 && (moment->year % 100 != 0 || moment->year % 400 == 0);
    return leap || moment->month != 2 || moment->day < 29;
}

// Reads the usual form. Other texts (years of five digits or before Christ, infinity) are left to the caller's object.
static bool read_moment(const char *p, const char *end, struct moment *moment)
{
    if (!read_day(&p, end, moment) || !letter(&p, end, ' ')) return false;
    if ((moment->hour = digits(&p, end, 2)) < 0 || !letter(&p, end, ':')) return false;
    if ((moment->minute = digits(&p, end, 2)) < 0 || !letter(&p, end, ':')) return false;
    if ((moment->second = digits(&p, end, 2)) < 0 || moment->second > 59) return false;
    if (moment->hour > 23 || moment->minute > 59) return false;
    return read_fraction(&p, end, &moment->microsecond) && read_offset(&p, end, moment);
}

// Days since 1970-01-01 of the proleptic Gregorian calendar; from "days_from_civil" of Howard Hinnant's
// "chrono-Compatible Low-Level Date Algorithms". The year is at least 0.
static int64_t days_of(const struct moment *moment)
{
    int64_t year = moment->month <= 2 ? moment->year - 1 : moment->year;
    int64_t era = (year >= 0 ? year : year - 399) / 400;
    int64_t of_era = year - era * 400;
    int64_t of_year = (153 * (moment->month + (moment->month > 2 ? -3 : 9)) + 2) / 5 + moment->day - 1;
    return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

enum { IN_LOCAL = INT_MAX, IN_UTC = INT_MAX - 1 }; // for rb_time_timespec_new

static VALUE time_of(const struct moment *moment, const struct caster *caster)
{
    if (!moment->has_offset && caster->read != ZONE_UTC) {
        VALUE time = rb_funcall(rb_cTime, id_local, 7, INT2FIX(moment->year), INT2FIX(moment->month),
                                INT2FIX(moment->day), INT2FIX(moment->hour), INT2FIX(moment->minute),
                                INT2FIX(moment->second), INT2FIX(moment->microsecond));
        return caster->made == ZONE_UTC ? rb_funcall(time, id_utc, 0) : time;
    }
    int64_t seconds = ((days_of(moment) * 24 + moment->hour) * 60 + moment->minute) * 60 + moment->second;
    struct timespec spec = {.tv_sec = (time_t)(seconds - moment->offset), .tv_nsec = (long)moment->microsecond * 1000};
    if (caster->made == ZONE_UTC || (caster->made == ZONE_GIVEN && !moment->has_offset))
        return rb_time_timespec_new(&spec, IN_UTC);
    VALUE local = rb_time_timespec_new(&spec, IN_LOCAL);
    if (caster->made == ZONE_LOCAL || NUM2INT(rb_time_utc_offset(local)) == moment->offset) return local;
    return rb_time_timespec_new(&spec, moment->offset);
}

// ---- values

// SQLite may have a number in any column.
static VALUE converted_number(const struct caster *caster, VALUE value)
{
    if (caster->cast == CAST_INTEGER && RB_INTEGER_TYPE_P(value)) return value;
    if (caster->cast == CAST_FLOAT && RB_FLOAT_TYPE_P(value)) return value;
    if (NIL_P(caster->call)) Check_Type(value, T_STRING);
    return rb_funcall(caster->call, id_call, 1, value);
}

static VALUE converted(const struct caster *caster, VALUE value)
{
    if (NIL_P(value) || caster->cast == CAST_NOTHING) return value;
    if (caster->cast == CAST_CALL) return rb_funcall(caster->call, id_call, 1, value);
    if (!RB_TYPE_P(value, T_STRING)) return converted_number(caster, value);
    const char *text = RSTRING_PTR(value);
    long length = RSTRING_LEN(value);
    struct moment moment = {0};
    switch (caster->cast) {
    case CAST_INTEGER: return rb_str_to_inum(value, 10, 0);
    case CAST_FLOAT:
        // NaN, Infinity and -Infinity are the caller's.
        if (length == 0 || (text[length - 1] > '9' && !NIL_P(caster->call))) break;
        return DBL2NUM(rb_str_to_dbl(value, 0));
    case CAST_BOOLEAN: return length == 1 && *text == 't' ? Qtrue : Qfalse;
    case CAST_DECIMAL: return rb_funcall(rb_mKernel, id_big_decimal, 1, value);
    case CAST_DATE:
        if (length == 10 && read_day(&text, text + length, &moment))
            return rb_funcall(rb_path2class("Date"), id_new, 3, INT2FIX(moment.year), INT2FIX(moment.month),
                              INT2FIX(moment.day));
        break;
    default:
        if (read_moment(text, text + length, &moment)) return time_of(&moment, caster);
        break;
    }
    if (NIL_P(caster->call)) rb_raise(rb_eArgError, "%+" PRIsVALUE " cannot be converted", value);
    return rb_funcall(caster->call, id_call, 1, value);
}

/*
 * @api private RowHashes.each(rows, names, casts) { |hash| … }
 *
 * Yields each row as a Hash.
 *
 * rows:: Array of Array
 * names:: Array of keys, one for each column. Of several columns with one name, the last one's value is in the Hash.
 * casts:: Array of what converts the columns' values, or nil. nil leaves a value as it is; an object is called with
 *         it; :integer, :float, :boolean, :decimal, :date and :time read text. [symbol, object] calls the object with
 *         text that has another form. [:time, object, read, made]: a time without an offset is in the zone +read+,
 *         :utc or :local, and the Time is in the zone +made+, or, with nil, in the text's own. NULL stays nil.
 */
static VALUE each(VALUE self, VALUE rows, VALUE names, VALUE casts)
{
    (void)self;
    Check_Type(rows, T_ARRAY);
    Check_Type(names, T_ARRAY);
    if (!NIL_P(casts)) Check_Type(casts, T_ARRAY);
    long count = RARRAY_LEN(names);
    VALUE pairs_memory, casters_memory;
    VALUE *pairs = ALLOCV_N(VALUE, pairs_memory, 2 * count + 1);
    struct caster *casters = ALLOCV_N(struct caster, casters_memory, count + 1);
    for (long i = 0; i < count; i++) {
        casters[i] = caster_of(NIL_P(casts) ? Qnil : rb_ary_entry(casts, i));
        pairs[2 * i] = rb_ary_entry(names, i);
        pairs[2 * i + 1] = Qnil;
    }
    for (long i = 0; i < RARRAY_LEN(rows); i++) {
        VALUE row = rb_ary_entry(rows, i);
        Check_Type(row, T_ARRAY);
        for (long j = 0; j < count; j++)
            pairs[2 * j + 1] = converted(&casters[j], rb_ary_entry(row, j)); // a conversion may run any code
        VALUE hash = rb_hash_new();
        rb_hash_bulk_insert(2 * count, pairs, hash);
        rb_yield(hash);
        RB_GC_GUARD(row);
    }
    ALLOCV_END(pairs_memory);
    ALLOCV_END(casters_memory);
    RB_GC_GUARD(rows);
    RB_GC_GUARD(names);
    RB_GC_GUARD(casts);
    return Qnil;
}

void Init_heddle_row_hashes(void)
{
    id_call = rb_intern("call");
    id_big_decimal = rb_intern("BigDecimal");
    id_local = rb_intern("local");
    id_utc = rb_intern("utc");
    id_new = rb_intern("new");
    VALUE db = rb_define_module_under(heddle_module, "DB");
    VALUE row_hashes = rb_define_module_under(db, "RowHashes");
    rb_define_singleton_method(row_hashes, "each", each, 3);
    rb_funcall(db, rb_intern("private_constant"), 1, ID2SYM(rb_intern("RowHashes")));
}
