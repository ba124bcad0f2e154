// Values in their binary form, said as the server's text; and texts, written in the binary form.
#include "answers.h"

#include "wire/postgresql/values_geometry.h"
#include "wire/postgresql/values_nested.h"
#include "wire/postgresql/values_network.h"
#include "wire/postgresql/values_numeric.h"
#include "wire/postgresql/values_time.h"

static void say_text(const char *text, size_t length)
{
    printf("%.*s", (int)length, text);
}

static void say_date(const struct pg_moment *moment)
{
    printf("%04d-%02d-%02d", moment->year > 0 ? moment->year : 1 - moment->year, moment->month, moment->day);
}

static void say_clock(unsigned hour, unsigned minute, unsigned second, unsigned microsecond)
{
    printf("%02u:%02u:%02u", hour, minute, second);
    if (!microsecond) return;
    char digits[8];
    int length = snprintf(digits, sizeof digits, "%06u", microsecond);
    while (digits[length - 1] == '0')
        length--;
    printf(".%.*s", length, digits);
}

static void say_time(int64_t microseconds)
{
    unsigned seconds = (unsigned)(microseconds / 1000000);
    say_clock(seconds / 3600, seconds / 60 % 60, seconds % 60, (unsigned)(microseconds % 1000000));
}

static bool date(struct pg_span value)
{
    int32_t days;
    struct pg_moment moment;
    if (!pg_read_date(value, &days)) return false;
    if (days == PG_DATE_INFINITY || days == PG_DATE_MINUS_INFINITY) {
        printf("%sinfinity", days < 0 ? "-" : "");
        return true;
    }
    pg_date_moment(days, &moment);
    say_date(&moment);
    if (moment.year <= 0) printf(" BC");
    return true;
}

static bool timestamp(struct pg_span value)
{
    int64_t microseconds;
    struct pg_moment moment;
    if (!pg_read_timestamp(value, &microseconds)) return false;
    if (microseconds == PG_TIMESTAMP_INFINITY || microseconds == PG_TIMESTAMP_MINUS_INFINITY) {
        printf("%sinfinity", microseconds < 0 ? "-" : "");
        return true;
    }
    pg_timestamp_moment(microseconds, &moment);
    say_date(&moment);
    printf(" ");
    say_clock(moment.hour, moment.minute, moment.second, moment.microsecond);
    if (moment.year <= 0) printf(" BC");
    return true;
}

static bool time_of_day(struct pg_span value)
{
    int64_t microseconds;
    if (!pg_read_time(value, &microseconds)) return false;
    say_time(microseconds);
    return true;
}

static bool timetz(struct pg_span value)
{
    int64_t microseconds;
    int32_t west;
    if (!pg_read_timetz(value, &microseconds, &west)) return false;
    say_time(microseconds);
    unsigned zone = (unsigned)(west > 0 ? west : -west);
    printf("%c%02u", west > 0 ? '-' : '+', zone / 3600);
    if (zone % 3600) printf(":%02u", zone / 60 % 60);
    if (zone % 60) printf(":%02u", zone % 60);
    return true;
}

// Months, days and microseconds; PostgreSQL's text depends on intervalstyle.
static bool interval(struct pg_span value)
{
    struct pg_interval interval;
    if (!pg_read_interval(value, &interval)) return false;
    printf("%d %d %lld", interval.months, interval.days, (long long)interval.microseconds);
    return true;
}

static bool numeric(struct pg_span value)
{
    struct pg_numeric numeric;
    if (!pg_read_numeric(value, &numeric)) return false;
    char *text = malloc(pg_numeric_text_most(&numeric));
    size_t length = pg_numeric_text(&numeric, text);
    say_text(text, length);
    free(text);
    return true;
}

static bool uuid(struct pg_span value)
{
    char text[PG_UUID_TEXT];
    if (!pg_uuid_text(value, text)) return false;
    say_text(text, sizeof text);
    return true;
}

static bool mac(struct pg_span value)
{
    char text[PG_MAC_TEXT_MOST];
    size_t length = pg_mac_text(value, text);
    say_text(text, length);
    return length > 0;
}

// Version, the address in hexadecimals, the network's bits, and whether it is a cidr.
static bool inet(struct pg_span value)
{
    struct pg_inet inet;
    if (!pg_read_inet(value, &inet)) return false;
    printf("%u ", inet.version);
    say_hex(inet.address, inet.version == 4 ? 4 : 16);
    printf("/%u %s", inet.bits, inet.cidr ? "cidr" : "inet");
    return true;
}

static bool bits(struct pg_span value)
{
    struct pg_bits bits;
    if (!pg_read_bits(value, &bits)) return false;
    uint8_t *digits = malloc(bits.count + 1);
    for (uint32_t i = 0; i < bits.count; i++)
        digits[i] = (uint8_t)('0' + pg_bit(&bits, i));
    say_text((char *)digits, bits.count);
    free(digits);
    return true;
}

static bool boolean(struct pg_span value)
{
    bool truth;
    if (!pg_read_bool(value, &truth)) return false;
    printf("%s", truth ? "t" : "f");
    return true;
}

static bool int2(struct pg_span value)
{
    int16_t number;
    if (!pg_read_int2(value, &number)) return false;
    printf("%d", number);
    return true;
}

static bool int4(struct pg_span value)
{
    int32_t number;
    if (!pg_read_int4(value, &number)) return false;
    printf("%d", number);
    return true;
}

static bool int8(struct pg_span value)
{
    int64_t number;
    if (!pg_read_int8(value, &number)) return false;
    printf("%lld", (long long)number);
    return true;
}

static bool float4(struct pg_span value)
{
    float number;
    if (!pg_read_float4(value, &number)) return false;
    printf("%.9g", (double)number);
    return true;
}

static bool float8(struct pg_span value)
{
    double number;
    if (!pg_read_float8(value, &number)) return false;
    printf("%.17g", number);
    return true;
}

static bool versioned(struct pg_span value)
{
    struct pg_span text;
    if (!pg_read_versioned(value, &text)) return false;
    say_text((const char *)text.at, text.length);
    return true;
}

static void say_point(struct pg_point point)
{
    printf("(%g,%g)", point.x, point.y);
}

static bool point(struct pg_span value)
{
    struct pg_point point;
    if (!pg_read_point(value, &point)) return false;
    say_point(point);
    return true;
}

static bool line(struct pg_span value)
{
    struct pg_line line;
    if (!pg_read_line(value, &line)) return false;
    printf("{%g,%g,%g}", line.a, line.b, line.c);
    return true;
}

static bool two_points(struct pg_span value, bool box)
{
    struct pg_point points[2];
    if (!pg_read_two_points(value, points)) return false;
    printf("%s", box ? "" : "[");
    say_point(points[0]);
    printf(",");
    say_point(points[1]);
    printf("%s", box ? "" : "]");
    return true;
}

static bool lseg(struct pg_span value)
{
    return two_points(value, false);
}

static bool box(struct pg_span value)
{
    return two_points(value, true);
}

static bool circle(struct pg_span value)
{
    struct pg_circle circle;
    if (!pg_read_circle(value, &circle)) return false;
    printf("<");
    say_point(circle.center);
    printf(",%g>", circle.radius);
    return true;
}

static bool points(const struct pg_points *points)
{
    printf("%s", points->closed ? "(" : "[");
    for (uint32_t i = 0; i < points->count; i++) {
        printf("%s", i ? "," : "");
        say_point(pg_point_of(points, i));
    }
    printf("%s", points->closed ? ")" : "]");
    return true;
}

static bool path(struct pg_span value)
{
    struct pg_points all;
    return pg_read_path(value, &all) && points(&all);
}

static bool polygon(struct pg_span value)
{
    struct pg_points all;
    return pg_read_polygon(value, &all) && points(&all);
}

// Elements are int4 where they have four bytes, else text.
void say_element(struct pg_span element)
{
    int32_t number;
    if (!element.at) {
        printf("NULL");
    } else if (pg_read_int4(element, &number)) {
        printf("%d", number);
    } else {
        say_text((const char *)element.at, element.length);
    }
}

static bool array(struct pg_span value)
{
    struct pg_array array;
    if (!pg_array_begin(value, &array)) return false;
    bool prefix = false;
    for (uint8_t i = 0; i < array.dimensions; i++)
        prefix = prefix || array.lower_bounds[i] != 1;
    for (uint8_t i = 0; prefix && i < array.dimensions; i++)
        printf("[%d:%d]", array.lower_bounds[i], array.lower_bounds[i] + (int32_t)array.sizes[i] - 1);
    if (prefix) printf("=");
    if (array.dimensions == 0) printf("{}");
    struct pg_span element;
    for (uint32_t index = 0; pg_array_next(&array, &element); index++) {
        uint32_t row = 1;
        if (index) printf(",");
        for (int i = array.dimensions - 1; i >= 0; i--)
            if (index % (row *= array.sizes[i]) == 0) printf("{");
        say_element(element);
        row = 1;
        for (int i = array.dimensions - 1; i >= 0; i--)
            if ((index + 1) % (row *= array.sizes[i]) == 0) printf("}");
    }
    return pg_array_complete(&array);
}

static void say_range(const struct pg_range *range)
{
    if (range->flags & PG_RANGE_EMPTY) {
        printf("empty");
        return;
    }
    printf("%s", range->flags & PG_RANGE_LOWER_INCLUSIVE ? "[" : "(");
    if (pg_range_has_lower(range->flags)) say_element(range->lower);
    printf(",");
    if (pg_range_has_upper(range->flags)) say_element(range->upper);
    printf("%s", range->flags & PG_RANGE_UPPER_INCLUSIVE ? "]" : ")");
}

static bool range(struct pg_span value)
{
    struct pg_range range;
    if (!pg_read_range(value, &range)) return false;
    say_range(&range);
    return true;
}

static bool multirange(struct pg_span value)
{
    struct pg_elements ranges;
    struct pg_range range;
    if (!pg_multirange_begin(value, &ranges)) return false;
    printf("{");
    while (pg_multirange_next(&ranges, &range)) {
        printf("%s", ranges.index > 1 ? "," : "");
        say_range(&range);
    }
    printf("}");
    return pg_elements_complete(&ranges);
}

static bool composite(struct pg_span value)
{
    struct pg_elements fields;
    struct pg_span field;
    uint32_t type;
    if (!pg_composite_begin(value, &fields)) return false;
    printf("(");
    while (pg_composite_next(&fields, &type, &field)) {
        printf("%s", fields.index > 1 ? "," : "");
        if (field.at) say_element(field);
    }
    printf(")");
    return pg_elements_complete(&fields);
}

static bool hstore(struct pg_span value)
{
    struct pg_elements pairs;
    struct pg_span key, of_key;
    if (!pg_hstore_begin(value, &pairs)) return false;
    while (pg_hstore_next(&pairs, &key, &of_key)) {
        printf("%s\"%.*s\"=>", pairs.index > 1 ? ", " : "", (int)key.length, key.at);
        printf(of_key.at ? "\"%.*s\"" : "NULL", (int)of_key.length, of_key.at);
    }
    return pg_elements_complete(&pairs);
}

static bool tsvector(struct pg_span value)
{
    struct pg_elements lexemes;
    struct pg_lexeme lexeme;
    if (!pg_tsvector_begin(value, &lexemes)) return false;
    while (pg_tsvector_next(&lexemes, &lexeme)) {
        printf("%s'%.*s'", lexemes.index > 1 ? " " : "", (int)lexeme.text.length, lexeme.text.at);
        for (uint16_t i = 0; i < lexeme.count; i++) {
            char weight;
            uint16_t position = pg_lexeme_position(&lexeme, i, &weight);
            printf("%s%u%.1s", i ? "," : ":", position, weight == 'D' ? "" : &weight);
        }
    }
    return pg_elements_complete(&lexemes);
}

static bool vector(struct pg_span value)
{
    struct pg_vector vector;
    if (!pg_read_vector(value, &vector)) return false;
    for (uint16_t i = 0; i < vector.count; i++)
        printf("%s%g", i ? "," : "[", (double)pg_vector_number(&vector, i));
    printf("]");
    return true;
}

void say_value(const char *type, struct pg_span value)
{
    static const struct {
        const char *type;
        bool (*say)(struct pg_span);
    } types[] = {{"bool", boolean},        {"int2", int2},        {"int4", int4},         {"int8", int8},
                 {"float4", float4},       {"float8", float8},    {"numeric", numeric},   {"date", date},
                 {"timestamp", timestamp}, {"time", time_of_day}, {"timetz", timetz},     {"interval", interval},
                 {"uuid", uuid},           {"macaddr", mac},      {"inet", inet},         {"bit", bits},
                 {"jsonb", versioned},     {"ltree", versioned},  {"point", point},       {"line", line},
                 {"lseg", lseg},           {"box", box},          {"circle", circle},     {"path", path},
                 {"polygon", polygon},     {"array", array},      {"range", range},       {"multirange", multirange},
                 {"composite", composite}, {"hstore", hstore},    {"tsvector", tsvector}, {"vector", vector}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (strcmp(types[i].type, type) != 0) continue;
        if (!types[i].say(value)) printf(" refused");
        return;
    }
    printf("no type %s", type);
}

// Writes the text of a value in the binary form of the type.
void put_text(const char *type, struct pg_span text)
{
    buffer.length = 0;
    enum pg_written written = strcmp(type, "numeric") == 0   ? pg_put_numeric(&buffer, text)
                              : strcmp(type, "uuid") == 0    ? pg_put_uuid(&buffer, text)
                              : strcmp(type, "macaddr") == 0 ? pg_put_mac(&buffer, text)
                                                             : pg_put_bits(&buffer, text);
    say_written(written);
}
