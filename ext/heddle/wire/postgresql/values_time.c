#include "wire/postgresql/values_time.h"

enum { ZONE_MOST = 15 * 3600 + 59 * 60 + 59 }; // seconds, in either direction

// ---- date

static bool valid_date(int32_t days)
{
    return (days >= PG_DATE_LEAST && days <= PG_DATE_MOST) || days == PG_DATE_INFINITY ||
           days == PG_DATE_MINUS_INFINITY;
}

bool pg_read_date(struct pg_span value, int32_t *days)
{
    if (value.length != 4) return false;
    *days = (int32_t)pg_load_32(value.at);
    return valid_date(*days);
}

// ---- timestamp

static bool valid_timestamp(int64_t microseconds)
{
    return (microseconds >= PG_TIMESTAMP_LEAST && microseconds <= PG_TIMESTAMP_MOST) ||
           microseconds == PG_TIMESTAMP_INFINITY || microseconds == PG_TIMESTAMP_MINUS_INFINITY;
}

bool pg_read_timestamp(struct pg_span value, int64_t *microseconds)
{
    if (value.length != 8) return false;
    *microseconds = (int64_t)pg_load_64(value.at);
    return valid_timestamp(*microseconds);
}

// ---- time

static bool valid_time(int64_t microseconds)
{
    return microseconds >= 0 && microseconds <= PG_DAY_MICROSECONDS;
}

bool pg_read_time(struct pg_span value, int64_t *microseconds)
{
    if (value.length != 8) return false;
    *microseconds = (int64_t)pg_load_64(value.at);
    return valid_time(*microseconds);
}

static bool valid_zone(int32_t west)
{
    return west >= -ZONE_MOST && west <= ZONE_MOST;
}

bool pg_read_timetz(struct pg_span value, int64_t *microseconds, int32_t *west)
{
    if (value.length != 12) return false;
    *microseconds = (int64_t)pg_load_64(value.at);
    *west = (int32_t)pg_load_32(value.at + 8);
    return valid_time(*microseconds) && valid_zone(*west);
}

// ---- interval

bool pg_read_interval(struct pg_span value, struct pg_interval *interval)
{
    if (value.length != 16) return false;
    interval->microseconds = (int64_t)pg_load_64(value.at);
    interval->days = (int32_t)pg_load_32(value.at + 8);
    interval->months = (int32_t)pg_load_32(value.at + 12);
    return true;
}

int pg_interval_infinity(const struct pg_interval *interval)
{
    if (interval->microseconds == INT64_MAX && interval->days == INT32_MAX && interval->months == INT32_MAX) return 1;
    if (interval->microseconds == INT64_MIN && interval->days == INT32_MIN && interval->months == INT32_MIN) return -1;
    return 0;
}

// ---- the calendar. The algorithms are Howard Hinnant's (howardhinnant.github.io/date_algorithms.html); his eras of
// 400 years begin on the first of March.

enum { ERA_DAYS = 146097, MARCH_2000 = 60, ERA_YEARS = 400 };

static int64_t floor_div(int64_t number, int64_t by)
{
    return number >= 0 ? number / by : -((-number + by - 1) / by);
}

void pg_date_moment(int32_t days, struct pg_moment *moment)
{
    int64_t since = (int64_t)days - MARCH_2000, era = floor_div(since, ERA_DAYS);
    unsigned of_era = (unsigned)(since - era * ERA_DAYS);
    unsigned years = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    unsigned of_year = of_era - (365 * years + years / 4 - years / 100);
    unsigned shifted = (5 * of_year + 2) / 153;
    *moment = (struct pg_moment){0};
    moment->day = (uint8_t)(of_year - (153 * shifted + 2) / 5 + 1);
    moment->month = (uint8_t)(shifted < 10 ? shifted + 3 : shifted - 9);
    moment->year = (int32_t)(2000 + era * ERA_YEARS + years + (moment->month <= 2));
}

void pg_timestamp_moment(int64_t microseconds, struct pg_moment *moment)
{
    // Without -microseconds, which overflows for INT64_MIN.
    int64_t days = microseconds / PG_DAY_MICROSECONDS, rest = microseconds % PG_DAY_MICROSECONDS;
    if (rest < 0) {
        rest += PG_DAY_MICROSECONDS;
        days--;
    }
    pg_date_moment((int32_t)days, moment);
    moment->microsecond = (uint32_t)(rest % 1000000);
    uint32_t seconds = (uint32_t)(rest / 1000000);
    moment->hour = (uint8_t)(seconds / 3600);
    moment->minute = (uint8_t)(seconds / 60 % 60);
    moment->second = (uint8_t)(seconds % 60);
}
