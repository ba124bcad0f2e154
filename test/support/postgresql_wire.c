// Asks ext/heddle/wire/wire_postgresql*.c for test/wire/postgresql_*_test.rb. A line has a question and its arguments
// in hexadecimals, with a space between; the answer is a line, too.
#include "wire/wire_postgresql.h"
#include "wire/wire_postgresql_copy.h"
#include "wire/wire_postgresql_requests.h"
#include "wire/wire_postgresql_sql.h"
#include "wire/wire_postgresql_values_geometry.h"
#include "wire/wire_postgresql_values_nested.h"
#include "wire/wire_postgresql_values_network.h"
#include "wire/wire_postgresql_values_numeric.h"
#include "wire/wire_postgresql_values_time.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool grow(struct pg_buffer *buffer, size_t room)
{
    size_t capacity = 2 * buffer->capacity + room;
    buffer->at = realloc(buffer->at, capacity);
    buffer->capacity = capacity;
    return buffer->at != NULL;
}

static struct pg_buffer buffer = {.grow = grow};

static const char *refusal(enum pg_written written)
{
    static const char *const names[] = {"written",      "no room",   "NUL in string",  "empty name",
                                        "too long",     "too many",  "formats differ", "count differs",
                                        "out of range", "malformed", "unknown name"};
    return names[written];
}

static int digit(char hexadecimal)
{
    return hexadecimal <= '9' ? hexadecimal - '0' : hexadecimal - 'a' + 10;
}

// Bytes in hexadecimals.
static struct pg_span unhex(const char *text)
{
    size_t length = strlen(text) / 2;
    uint8_t *bytes = malloc(length + 1);
    for (size_t i = 0; i < length; i++)
        bytes[i] = (uint8_t)(digit(text[2 * i]) << 4 | digit(text[2 * i + 1]));
    return (struct pg_span){bytes, length};
}

static void say_hex(const uint8_t *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++)
        printf("%02x", bytes[i]);
}

// ---- SQL

static void kinds(struct pg_span text)
{
    static const char *const names[] = {"select",
                                        "insert",
                                        "update",
                                        "delete",
                                        "merge",
                                        "begin",
                                        "commit",
                                        "rollback",
                                        "savepoint",
                                        "rollback to",
                                        "release",
                                        "prepare transaction",
                                        "commit prepared",
                                        "rollback prepared",
                                        "copy in",
                                        "copy out",
                                        "copy",
                                        "set",
                                        "set local",
                                        "reset",
                                        "discard",
                                        "prepare",
                                        "execute",
                                        "deallocate",
                                        "declare",
                                        "fetch",
                                        "move",
                                        "close",
                                        "listen",
                                        "unlisten",
                                        "notify",
                                        "lock",
                                        "explain",
                                        "show",
                                        "call",
                                        "do",
                                        "definition",
                                        "other"};
    struct pg_sql_scan scan;
    struct pg_sql_statement statement;
    const char *separator = "";
    for (pg_sql_begin(&scan, text.at, text.at + text.length, false); pg_sql_next_statement(&scan, &statement);) {
        printf("%s%s%s", separator, names[statement.kind], statement.session ? " session" : "");
        separator = ",";
    }
    if (scan.unterminated) printf(" unterminated");
}

// Names are numbered in the order in which they are first met; "unknown" is bound to nothing.
static struct pg_span met[16];
static uint32_t met_count;

static uint32_t number(void *context, struct pg_span name)
{
    (void)context;
    if (name.length == 7 && memcmp(name.at, "unknown", 7) == 0) return 0;
    for (uint32_t i = 0; i < met_count; i++)
        if (met[i].length == name.length && memcmp(met[i].at, name.at, name.length) == 0) return i + 1;
    met[met_count] = name;
    return ++met_count;
}

static void rewrite(struct pg_span text, bool named, bool backslashes)
{
    struct pg_sql_rewriting rewriting = {.backslashes = backslashes, .number = named ? number : NULL};
    met_count = 0;
    buffer.length = 0;
    enum pg_written written = pg_sql_rewrite(&buffer, text.at, text.at + text.length, &rewriting);
    if (written) {
        printf("%s", refusal(written));
        return;
    }
    printf("%u %s ", rewriting.parameters, rewriting.native ? "native" : "rewritten");
    say_hex(buffer.at, buffer.length);
}

// ---- values: each as the server's text, then what was read, written again in hexadecimals

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
        return !pg_put_date(&buffer, days);
    }
    pg_date_moment(days, &moment);
    say_date(&moment);
    if (moment.year <= 0) printf(" BC");
    return pg_moment_date(&moment, &days) && !pg_put_date(&buffer, days);
}

static bool timestamp(struct pg_span value)
{
    int64_t microseconds;
    struct pg_moment moment;
    if (!pg_read_timestamp(value, &microseconds)) return false;
    if (microseconds == PG_TIMESTAMP_INFINITY || microseconds == PG_TIMESTAMP_MINUS_INFINITY) {
        printf("%sinfinity", microseconds < 0 ? "-" : "");
        return !pg_put_timestamp(&buffer, microseconds);
    }
    pg_timestamp_moment(microseconds, &moment);
    say_date(&moment);
    printf(" ");
    say_clock(moment.hour, moment.minute, moment.second, moment.microsecond);
    if (moment.year <= 0) printf(" BC");
    return pg_moment_timestamp(&moment, &microseconds) && !pg_put_timestamp(&buffer, microseconds);
}

static bool time_of_day(struct pg_span value)
{
    int64_t microseconds;
    if (!pg_read_time(value, &microseconds)) return false;
    say_time(microseconds);
    return !pg_put_time(&buffer, microseconds);
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
    return !pg_put_timetz(&buffer, microseconds, west);
}

// Months, days and microseconds; PostgreSQL's text depends on intervalstyle.
static bool interval(struct pg_span value)
{
    struct pg_interval interval;
    if (!pg_read_interval(value, &interval)) return false;
    printf("%d %d %lld", interval.months, interval.days, (long long)interval.microseconds);
    return !pg_put_interval(&buffer, &interval);
}

static bool numeric(struct pg_span value)
{
    struct pg_numeric numeric;
    if (!pg_read_numeric(value, &numeric)) return false;
    char *text = malloc(pg_numeric_text_most(&numeric));
    size_t length = pg_numeric_text(&numeric, text);
    say_text(text, length);
    bool written = !pg_put_numeric(&buffer, (struct pg_span){(uint8_t *)text, length});
    free(text);
    return written;
}

static bool uuid(struct pg_span value)
{
    char text[PG_UUID_TEXT];
    if (!pg_uuid_text(value, text)) return false;
    say_text(text, sizeof text);
    return !pg_put_uuid(&buffer, (struct pg_span){(uint8_t *)text, sizeof text});
}

static bool mac(struct pg_span value)
{
    char text[PG_MAC_TEXT_MOST];
    size_t length = pg_mac_text(value, text);
    say_text(text, length);
    return length > 0 && !pg_put_mac(&buffer, (struct pg_span){(uint8_t *)text, length});
}

// Version, the address in hexadecimals, the network's bits, and whether it is a cidr.
static bool inet(struct pg_span value)
{
    struct pg_inet inet;
    if (!pg_read_inet(value, &inet)) return false;
    printf("%u ", inet.version);
    say_hex(inet.address, inet.version == 4 ? 4 : 16);
    printf("/%u %s", inet.bits, inet.cidr ? "cidr" : "inet");
    return !pg_put_inet(&buffer, &inet);
}

static bool bits(struct pg_span value)
{
    struct pg_bits bits;
    if (!pg_read_bits(value, &bits)) return false;
    uint8_t *digits = malloc(bits.count + 1);
    for (uint32_t i = 0; i < bits.count; i++)
        digits[i] = (uint8_t)('0' + pg_bit(&bits, i));
    say_text((char *)digits, bits.count);
    bool written = !pg_put_bits(&buffer, (struct pg_span){digits, bits.count});
    free(digits);
    return written;
}

static bool boolean(struct pg_span value)
{
    bool truth;
    if (!pg_read_bool(value, &truth)) return false;
    printf("%s", truth ? "t" : "f");
    return !pg_put_bool(&buffer, truth);
}

static bool int2(struct pg_span value)
{
    int16_t number;
    if (!pg_read_int2(value, &number)) return false;
    printf("%d", number);
    return !pg_put_int2(&buffer, number);
}

static bool int4(struct pg_span value)
{
    int32_t number;
    if (!pg_read_int4(value, &number)) return false;
    printf("%d", number);
    return !pg_put_int4(&buffer, number);
}

static bool int8(struct pg_span value)
{
    int64_t number;
    if (!pg_read_int8(value, &number)) return false;
    printf("%lld", (long long)number);
    return !pg_put_int8(&buffer, number);
}

static bool float4(struct pg_span value)
{
    float number;
    if (!pg_read_float4(value, &number)) return false;
    printf("%.9g", (double)number);
    return !pg_put_float4(&buffer, number);
}

static bool float8(struct pg_span value)
{
    double number;
    if (!pg_read_float8(value, &number)) return false;
    printf("%.17g", number);
    return !pg_put_float8(&buffer, number);
}

static bool versioned(struct pg_span value)
{
    struct pg_span text;
    if (!pg_read_versioned(value, &text)) return false;
    say_text((const char *)text.at, text.length);
    return !pg_put_versioned(&buffer, text);
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
    return !pg_put_point(&buffer, point);
}

static bool line(struct pg_span value)
{
    struct pg_line line;
    if (!pg_read_line(value, &line)) return false;
    printf("{%g,%g,%g}", line.a, line.b, line.c);
    return !pg_put_line(&buffer, line);
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
    return !pg_put_two_points(&buffer, points[0], points[1]);
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
    return !pg_put_circle(&buffer, circle);
}

static bool points(const struct pg_points *points)
{
    printf("%s", points->closed ? "(" : "[");
    for (uint32_t i = 0; i < points->count; i++) {
        printf("%s", i ? "," : "");
        say_point(pg_point_of(points, i));
        pg_put_point(&buffer, pg_point_of(points, i));
    }
    printf("%s", points->closed ? ")" : "]");
    return true;
}

static bool path(struct pg_span value)
{
    struct pg_points all;
    return pg_read_path(value, &all) && !pg_put_path(&buffer, all.closed, all.count) && points(&all);
}

static bool polygon(struct pg_span value)
{
    struct pg_points all;
    return pg_read_polygon(value, &all) && !pg_put_polygon(&buffer, all.count) && points(&all);
}

// Elements are int4 where they have four bytes, else text.
static void say_element(struct pg_span element)
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
    if (!pg_array_begin(value, &array) || pg_put_array(&buffer, &array, true)) return false;
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
        pg_put_value(&buffer, element);
    }
    return pg_array_complete(&array);
}

static void say_range(const struct pg_range *range)
{
    pg_put_range(&buffer, range->flags);
    if (range->flags & PG_RANGE_EMPTY) {
        printf("empty");
        return;
    }
    printf("%s", range->flags & PG_RANGE_LOWER_INCLUSIVE ? "[" : "(");
    if (pg_range_has_lower(range->flags)) {
        say_element(range->lower);
        pg_put_value(&buffer, range->lower);
    }
    printf(",");
    if (pg_range_has_upper(range->flags)) {
        say_element(range->upper);
        pg_put_value(&buffer, range->upper);
    }
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
    if (!pg_multirange_begin(value, &ranges) || pg_put_multirange(&buffer, ranges.count)) return false;
    printf("{");
    while (pg_multirange_next(&ranges, &range)) {
        size_t begin;
        printf("%s", ranges.index > 1 ? "," : "");
        pg_value_begin(&buffer, &begin);
        say_range(&range);
        pg_value_end(&buffer, begin);
    }
    printf("}");
    return pg_elements_complete(&ranges);
}

static bool composite(struct pg_span value)
{
    struct pg_elements fields;
    struct pg_span field;
    uint32_t type;
    if (!pg_composite_begin(value, &fields) || pg_put_composite(&buffer, fields.count)) return false;
    printf("(");
    while (pg_composite_next(&fields, &type, &field)) {
        printf("%s", fields.index > 1 ? "," : "");
        if (field.at) say_element(field);
        pg_put_oid(&buffer, type);
        pg_put_value(&buffer, field);
    }
    printf(")");
    return pg_elements_complete(&fields);
}

static bool hstore(struct pg_span value)
{
    struct pg_elements pairs;
    struct pg_span key, of_key;
    if (!pg_hstore_begin(value, &pairs) || pg_put_hstore(&buffer, pairs.count)) return false;
    while (pg_hstore_next(&pairs, &key, &of_key)) {
        printf("%s\"%.*s\"=>", pairs.index > 1 ? ", " : "", (int)key.length, key.at);
        printf(of_key.at ? "\"%.*s\"" : "NULL", (int)of_key.length, of_key.at);
        pg_put_value(&buffer, key);
        pg_put_value(&buffer, of_key);
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
    pg_put_bytes(&buffer, value.at, value.length);
    return pg_elements_complete(&lexemes);
}

static bool vector(struct pg_span value)
{
    struct pg_vector vector;
    if (!pg_read_vector(value, &vector) || pg_put_vector(&buffer, vector.count)) return false;
    for (uint16_t i = 0; i < vector.count; i++) {
        printf("%s%g", i ? "," : "[", (double)pg_vector_number(&vector, i));
        pg_put_float4(&buffer, pg_vector_number(&vector, i));
    }
    printf("]");
    return true;
}

static void say_value(const char *type, struct pg_span value)
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
    buffer.length = 0;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (strcmp(types[i].type, type) != 0) continue;
        if (!types[i].say(value)) {
            printf(" refused");
            return;
        }
        printf(" | ");
        say_hex(buffer.at, buffer.length);
        return;
    }
    printf("no type %s", type);
}

// What a text of a type becomes.
static void put_text(const char *type, struct pg_span text)
{
    buffer.length = 0;
    enum pg_written written = strcmp(type, "numeric") == 0   ? pg_put_numeric(&buffer, text)
                              : strcmp(type, "uuid") == 0    ? pg_put_uuid(&buffer, text)
                              : strcmp(type, "macaddr") == 0 ? pg_put_mac(&buffer, text)
                                                             : pg_put_bits(&buffer, text);
    if (written) {
        printf("%s", refusal(written));
    } else {
        say_hex(buffer.at, buffer.length);
    }
}

// ---- COPY

static const struct pg_copy_text other_text = {'|', {(const uint8_t *)"null", 4}};
static const struct pg_copy_csv other_csv = {';', '\'', '\\', {(const uint8_t *)"null", 4}};

static void say_field(struct pg_span value)
{
    if (!value.at)
        printf("NULL ");
    else
        say_hex(value.at, value.length), printf("- ");
}

// The values of all records, "=" behind each record.
static void copy_out(bool csv, bool other, struct pg_span data)
{
    const struct pg_copy_text *text = other ? &other_text : &pg_copy_text_default;
    const struct pg_copy_csv *form = other ? &other_csv : &pg_copy_csv_default;
    const uint8_t *p = data.at, *end = p + data.length;
    struct pg_span record;
    bool end_of_data;
    while ((csv ? pg_copy_csv_record(form, p, end, true, &record, &p, &end_of_data)
                : pg_copy_text_line(p, end, true, &record, &p, &end_of_data)) == PG_DONE) {
        struct pg_copy_fields fields;
        struct pg_copy_field field;
        pg_copy_fields_begin(&fields, record);
        while (csv ? pg_copy_csv_next(form, &fields, &field) : pg_copy_text_next(text, &fields, &field)) {
            struct pg_span value = field.raw;
            uint8_t *out = malloc(value.length + 1);
            if (value.at)
                value =
                    (struct pg_span){out, csv ? pg_copy_csv_decode(form, value, out) : pg_copy_text_decode(value, out)};
            say_field(value);
            free(out);
        }
        printf("= ");
    }
}

// One value in each form, as it is sent.
static void copy_in(bool csv, bool other, struct pg_span value)
{
    buffer.length = 0;
    enum pg_written written = csv ? pg_put_copy_csv(&buffer, other ? &other_csv : &pg_copy_csv_default, value, false)
                                  : pg_put_copy_text(&buffer, other ? &other_text : &pg_copy_text_default, value);
    if (written) {
        printf("%s", refusal(written));
    } else {
        say_hex(buffer.at, buffer.length);
    }
}

// ---- messages

static struct pg_span text_of(const char *text)
{
    return (struct pg_span){(const uint8_t *)text, strlen(text)};
}

static void say_written(enum pg_written written)
{
    if (written) {
        printf("%s", refusal(written));
    } else {
        say_hex(buffer.at, buffer.length);
    }
}

static void startup(struct pg_span user)
{
    struct pg_setting settings[] = {{text_of("user"), user}, {text_of("database"), text_of("postgres")}};
    buffer.length = 0;
    say_written(pg_put_startup(&buffer, PG_PROTOCOL_3_0, settings, 2));
}

// A statement with one parameter, prepared and run in one flight.
static void one_flight(struct pg_span sql, struct pg_span value)
{
    static const uint8_t formats[] = {PG_TEXT}, result_formats[] = {PG_BINARY};
    struct pg_bind bind;
    buffer.length = 0;
    enum pg_written written = pg_put_parse(&buffer, text_of("s"), sql, NULL, 0);
    if (!written) written = pg_bind_begin(&bind, &buffer, text_of(""), text_of("s"), formats, 1, 1);
    if (!written) written = pg_bind_value(&bind, value);
    if (!written) written = pg_bind_end(&bind, result_formats, 1);
    if (!written) written = pg_put_describe(&buffer, PG_PORTAL, text_of(""));
    if (!written) written = pg_put_execute(&buffer, text_of(""), 0);
    if (!written) written = pg_put_close(&buffer, PG_STATEMENT, text_of("s"));
    if (!written) written = pg_put_sync(&buffer);
    say_written(written);
}

static void bind_many(uint32_t count, uint32_t values, uint32_t formats)
{
    static const uint8_t format[8];
    struct pg_bind bind;
    buffer.length = 0;
    pg_bind_begin(&bind, &buffer, text_of(""), text_of(""), format, formats, count);
    for (uint32_t i = 0; i < values; i++)
        pg_bind_value(&bind, (struct pg_span){NULL, 0});
    enum pg_written written = pg_bind_end(&bind, NULL, 0);
    printf("%s %zu", refusal(written), buffer.length);
}

// What must be refused before a byte of it is looked at.
static void refusals(void)
{
    struct pg_span huge = {(const uint8_t *)"", (size_t)PG_MESSAGE_MOST + 1};
    struct pg_span nul = {(const uint8_t *)"a\0b", 3};
    struct pg_setting setting = {text_of(""), text_of("x")};
    char options[PG_STARTUP_MOST + 1];
    memset(options, 'x', sizeof options - 1);
    options[sizeof options - 1] = 0;
    struct pg_setting long_setting = {text_of("options"), text_of(options)};
    buffer.length = 0;
    printf("%s, ", refusal(pg_put_query(&buffer, nul)));
    printf("%s, ", refusal(pg_put_query(&buffer, huge)));
    printf("%s, ", refusal(pg_put_copy_data(&buffer, huge)));
    printf("%s, ", refusal(pg_put_parse(&buffer, text_of(""), text_of(""), NULL, PG_PARAMETERS_MOST + 1)));
    printf("%s, ", refusal(pg_put_startup(&buffer, PG_PROTOCOL_3_0, &setting, 1)));
    printf("%s, ", refusal(pg_put_startup(&buffer, PG_PROTOCOL_3_0, &long_setting, 1)));
    printf("%s, ", refusal(pg_put_execute(&buffer, text_of(""), UINT32_C(1) << 31)));
    printf("%s, ", refusal(pg_put_cancel(&buffer, 1, text_of("abc"))));
    printf("%zu", buffer.length);
}

// The types of messages, and of some what they say.
static void messages(struct pg_span bytes)
{
    const uint8_t *p = bytes.at, *end = bytes.at + bytes.length;
    struct pg_message message;
    while (pg_message(p, end, &message) == PG_DONE) {
        struct pg_columns columns;
        struct pg_column column;
        struct pg_row row;
        struct pg_command command;
        struct pg_span value;
        enum pg_transaction transaction;
        printf("%c", message.type);
        if (message.type == PG_ROW_DESCRIPTION && pg_columns_begin(message.p, message.end, &columns)) {
            while (pg_columns_next(&columns, &column))
                printf("[%.*s %u]", (int)column.name.length, column.name.at, column.type);
            if (!pg_columns_complete(&columns)) printf("!");
        }
        if (message.type == PG_DATA_ROW && pg_row_begin(message.p, message.end, &row)) {
            while (pg_row_next(&row, &value)) {
                printf("[");
                say_element(value);
                printf("]");
            }
            if (!pg_row_complete(&row)) printf("!");
        }
        if (message.type == PG_COMMAND_COMPLETE && pg_command(message.p, message.end, &command))
            printf("[%.*s %llu]", (int)command.name.length, command.name.at, (unsigned long long)command.rows);
        if (message.type == PG_ERROR_RESPONSE && pg_error_field(message.p, message.end, PG_ERROR_SQLSTATE, &value))
            printf("[%.*s]", (int)value.length, value.at);
        if (message.type == PG_READY_FOR_QUERY && pg_ready_for_query(message.p, message.end, &transaction))
            printf("[%c]", transaction);
        printf(" ");
        p = message.end;
    }
    printf("%zu", (size_t)(end - p));
}

static void answer(const char *question, char **arguments, int count)
{
    struct pg_span first = unhex(count > 0 ? arguments[0] : "");
    if (strcmp(question, "kinds") == 0) kinds(first);
    if (strcmp(question, "questions") == 0) rewrite(first, false, false);
    if (strcmp(question, "questions_with_backslashes") == 0) rewrite(first, false, true);
    if (strcmp(question, "names") == 0) rewrite(first, true, false);
    if (strcmp(question, "startup") == 0) startup(first);
    if (strcmp(question, "one_flight") == 0) {
        struct pg_span value = unhex(arguments[1]);
        one_flight(first, value);
        free((void *)value.at);
    }
    if (strcmp(question, "bind_many") == 0) bind_many(PG_PARAMETERS_MOST, PG_PARAMETERS_MOST, 1);
    if (strcmp(question, "bind_too_many") == 0) bind_many(PG_PARAMETERS_MOST + 1, 0, 0);
    if (strcmp(question, "bind_too_few") == 0) bind_many(2, 1, 0);
    if (strcmp(question, "bind_one_more") == 0) bind_many(1, 2, 0);
    if (strcmp(question, "bind_other_formats") == 0) bind_many(3, 3, 2);
    if (strcmp(question, "refusals") == 0) refusals();
    if (strcmp(question, "messages") == 0) messages(first);
    if (strncmp(question, "value_", 6) == 0) say_value(question + 6, first);
    if (strncmp(question, "put_", 4) == 0) put_text(question + 4, first);
    if (strncmp(question, "copy_out_", 9) == 0) copy_out(strstr(question, "csv"), strstr(question, "other"), first);
    if (strncmp(question, "copy_in_", 8) == 0) copy_in(strstr(question, "csv"), strstr(question, "other"), first);
    free((void *)first.at);
}

int main(void)
{
    char *line = NULL;
    size_t capacity = 0;
    while (getline(&line, &capacity, stdin) > 0) {
        char *words[8];
        int count = 0;
        for (char *word = strtok(line, " \n"); word && count < 8; word = strtok(NULL, " \n"))
            words[count++] = word;
        if (count > 0) answer(words[0], words + 1, count - 1);
        puts("");
        fflush(stdout);
    }
    free(line);
    free(buffer.at);
    return 0;
}
