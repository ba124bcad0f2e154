// Dates, times and intervals in their binary form: days and microseconds since 2000-01-01 in the Gregorian calendar,
// extended to before its introduction (date.c and timestamp.c of the server). The year 0 is 1 BC.
#ifndef HEDDLE_WIRE_POSTGRESQL_VALUES_TIME_H
#define HEDDLE_WIRE_POSTGRESQL_VALUES_TIME_H

#include "wire/postgresql/buffer.h"

#define PG_DATE_INFINITY            INT32_MAX
#define PG_DATE_MINUS_INFINITY      INT32_MIN
#define PG_TIMESTAMP_INFINITY       INT64_MAX
#define PG_TIMESTAMP_MINUS_INFINITY INT64_MIN

// Dates range from 4714-11-24 BC to before 5874898-01-01, timestamps to before 294277-01-01.
#define PG_DATE_LEAST      (-2451545)
#define PG_DATE_MOST       2145031948
#define PG_TIMESTAMP_LEAST (-INT64_C(211813488000000000))
#define PG_TIMESTAMP_MOST  (INT64_C(9223371331200000000) - 1)

#define PG_DAY_MICROSECONDS INT64_C(86400000000)
// Seconds from 1970-01-01 to 2000-01-01.
#define PG_EPOCH_SECONDS INT64_C(946684800)

// ---- date: days

bool pg_read_date(struct pg_span value, int32_t *days);

// ---- timestamp, and timestamptz, which is in UTC: microseconds

bool pg_read_timestamp(struct pg_span value, int64_t *microseconds);

// ---- time: microseconds of the day; 24:00:00 is valid. timetz: also its zone, in seconds west of Greenwich

bool pg_read_time(struct pg_span value, int64_t *microseconds);
bool pg_read_timetz(struct pg_span value, int64_t *microseconds, int32_t *west);

// ---- interval

struct pg_interval {
    int64_t microseconds;
    int32_t days, months;
};
bool pg_read_interval(struct pg_span value, struct pg_interval *interval);
// 1 and -1 for the infinite intervals of servers since 17, otherwise 0.
int pg_interval_infinity(const struct pg_interval *interval);

// ---- the calendar

struct pg_moment {
    int32_t year;
    uint8_t month, day, hour, minute, second;
    uint32_t microsecond;
};
// For a finite date or timestamp.
void pg_date_moment(int32_t days, struct pg_moment *moment);
void pg_timestamp_moment(int64_t microseconds, struct pg_moment *moment);

#endif
