// Dates and times.
#include "db/postgresql/values.h"
#include "wire/postgresql/values_time.h"

#include <math.h>

static VALUE cDate, cInterval, mCalendar;
static ID id_jd, id_day, id_new, id_local;

static VALUE infinity(bool positive)
{
    return DBL2NUM(positive ? HUGE_VAL : -HUGE_VAL);
}

VALUE postgresql_date_value(int32_t days)
{
    enum { JULIAN_DAY = 2451545, REFORM = -152384 }; // 2000-01-01; 1582-10-15
    if (days == PG_DATE_INFINITY || days == PG_DATE_MINUS_INFINITY) return infinity(days > 0);
    VALUE day = LONG2NUM((long)days + JULIAN_DAY);
    if (days < REFORM) return rb_funcall(mCalendar, id_day, 1, day);
    return rb_funcall(cDate, id_jd, 1, day);
}

VALUE postgresql_time_value(const struct postgresql_protocol *protocol, int64_t microseconds)
{
    if (microseconds == PG_TIMESTAMP_INFINITY || microseconds == PG_TIMESTAMP_MINUS_INFINITY)
        return infinity(microseconds > 0);
    int64_t seconds = microseconds / 1000000, rest = microseconds % 1000000;
    if (rest < 0) {
        rest += 1000000;
        seconds--;
    }
    struct timespec spec = {.tv_sec = (time_t)(seconds + PG_EPOCH_SECONDS), .tv_nsec = (long)rest * 1000};
    return rb_time_timespec_new(&spec, protocol->local ? INT_MAX : INT_MAX - 1); // INT_MAX - 1: UTC
}

// A timestamp without a time zone is in that of this process where Ruby's times are.
VALUE postgresql_zoneless_value(const struct postgresql_protocol *protocol, int64_t microseconds)
{
    if (!protocol->local || microseconds == PG_TIMESTAMP_INFINITY || microseconds == PG_TIMESTAMP_MINUS_INFINITY)
        return postgresql_time_value(protocol, microseconds);
    struct pg_moment moment;
    pg_timestamp_moment(microseconds, &moment);
    return rb_funcall(rb_cTime, id_local, 7, INT2NUM(moment.year), INT2FIX(moment.month), INT2FIX(moment.day),
                      INT2FIX(moment.hour), INT2FIX(moment.minute), INT2FIX(moment.second),
                      UINT2NUM(moment.microsecond));
}

// As the server prints it: "12:34:56.5+02".
VALUE postgresql_timetz_text(int64_t microseconds, int32_t west)
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

VALUE postgresql_interval_value(const struct postgresql_reading *reading, struct pg_span span)
{
    struct pg_interval interval;
    postgresql_check_value(reading, pg_read_interval(span, &interval));
    int infinite = pg_interval_infinity(&interval);
    if (infinite) return infinity(infinite > 0);
    return rb_funcall(cInterval, id_new, 3, INT2NUM(interval.months), INT2NUM(interval.days),
                      LL2NUM(interval.microseconds));
}

void postgresql_values_time_define(void)
{
    id_jd = rb_intern("jd");
    id_day = rb_intern("day");
    id_new = rb_intern("new");
    id_local = rb_intern("local");
}

void postgresql_values_time_load_classes(void)
{
    cDate = db_class("Date");
    mCalendar = db_class("Heddle::DB::Calendar");
    cInterval = db_class("Heddle::DB::PostgreSQL::Interval");
}
