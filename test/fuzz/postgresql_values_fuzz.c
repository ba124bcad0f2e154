// Throws bytes at the parsers of wire/postgresql/values*.c, alone, under sanitizers; see fuzz.h. An input is a
// byte that chooses the type, and a value. If the type has a writer, the value is written again, and has to be the
// same. The corpus is what PostgreSQL 15 sent.
#include "wire/postgresql/values_geometry.h"
#include "wire/postgresql/values_nested.h"
#include "wire/postgresql/values_network.h"
#include "wire/postgresql/values_numeric.h"
#include "wire/postgresql/values_time.h"

#include "fuzz.h"

static bool grow(struct pg_buffer *buffer, size_t room)
{
    size_t capacity = buffer->length + room; // exactly, for the sanitizer to see a byte too many
    buffer->at = realloc(buffer->at, capacity);
    buffer->capacity = capacity;
    return true;
}

static struct pg_buffer buffer;

static void check_inside(struct pg_span span, struct pg_span value)
{
    if (!span.at) return;
    check(span.at >= value.at && span.at + span.length <= value.at + value.length, "a span leaves its input");
}

static void check_same(enum pg_written written, struct pg_span value)
{
    check(written == PG_WRITTEN, "what was read is not written");
    check(buffer.length == value.length && memcmp(buffer.at, value.at, value.length) == 0, "other bytes are written");
}

// Other bytes may say the same number: digits that are 0 at either end, or that the scale hides.
static void try_numeric(struct pg_span value)
{
    struct pg_numeric numeric, again;
    if (!pg_read_numeric(value, &numeric)) return;
    size_t most = pg_numeric_text_most(&numeric);
    char *text = malloc(most), *same = malloc(most + 8);
    size_t length = pg_numeric_text(&numeric, text);
    check(length > 0 && length <= most, "a numeric's text");
    enum pg_written written = pg_put_numeric(&buffer, (struct pg_span){(uint8_t *)text, length});
    check(written == PG_WRITTEN, "a numeric's text is no numeric");
    check(pg_read_numeric((struct pg_span){buffer.at, buffer.length}, &again), "a numeric that was written");
    check(pg_numeric_text_most(&again) <= most + 8, "room for the same text");
    size_t minus = text[0] == '-' && again.sign == PG_NUMERIC_POSITIVE; // of zero
    check(pg_numeric_text(&again, same) == length - minus && memcmp(same, text + minus, length - minus) == 0,
          "another numeric");
    free(text);
    free(same);
}

// Any text, which may be a number.
static void try_numeric_text(struct pg_span text)
{
    struct pg_numeric numeric;
    if (pg_put_numeric(&buffer, text)) return;
    check(pg_read_numeric((struct pg_span){buffer.at, buffer.length}, &numeric), "a numeric that was written");
    char *again = malloc(pg_numeric_text_most(&numeric));
    pg_numeric_text(&numeric, again);
    free(again);
}

static void check_moment(const struct pg_moment *moment)
{
    check(moment->month >= 1 && moment->month <= 12 && moment->day >= 1 && moment->day <= 31, "a day");
    check(moment->hour < 24 && moment->minute < 60 && moment->second < 60, "a time of day");
    check(moment->microsecond < 1000000, "microseconds");
}

static void try_time(struct pg_span value)
{
    int32_t days, west;
    int64_t microseconds;
    struct pg_moment moment;
    struct pg_interval interval;
    if (pg_read_date(value, &days) && days != PG_DATE_INFINITY && days != PG_DATE_MINUS_INFINITY) {
        pg_date_moment(days, &moment);
        check_moment(&moment);
    }
    if (pg_read_timestamp(value, &microseconds) && microseconds != PG_TIMESTAMP_INFINITY &&
        microseconds != PG_TIMESTAMP_MINUS_INFINITY) {
        pg_timestamp_moment(microseconds, &moment);
        check_moment(&moment);
    }
    if (pg_read_time(value, &microseconds) || pg_read_timetz(value, &microseconds, &west))
        check(microseconds >= 0 && microseconds <= PG_DAY_MICROSECONDS, "a time");
    if (pg_read_interval(value, &interval)) pg_interval_infinity(&interval);
}

static void try_network(struct pg_span value)
{
    struct pg_inet inet;
    if (pg_read_inet(value, &inet)) check(inet.bits <= (inet.version == 4 ? 32 : 128), "the bits of a network");
    char text[PG_UUID_TEXT];
    size_t length = pg_mac_text(value, text);
    if (length > 0) check_same(pg_put_mac(&buffer, (struct pg_span){(uint8_t *)text, length}), value);
    buffer.length = 0;
    if (pg_uuid_text(value, text))
        check_same(pg_put_uuid(&buffer, (struct pg_span){(uint8_t *)text, sizeof text}), value);
    buffer.length = 0;
    if (!pg_put_mac(&buffer, value)) check(buffer.length == 6 || buffer.length == 8, "the length of an address");
    buffer.length = 0;
    if (!pg_put_uuid(&buffer, value)) check(buffer.length == PG_UUID, "the length of a UUID");
}

static void try_scalars(struct pg_span value)
{
    bool truth;
    int16_t int2;
    int32_t int4;
    int64_t int8;
    uint32_t oid;
    float float4;
    double float8;
    pg_read_bool(value, &truth);
    pg_read_int2(value, &int2);
    pg_read_int4(value, &int4);
    pg_read_int8(value, &int8);
    pg_read_oid(value, &oid);
    pg_read_float4(value, &float4);
    pg_read_float8(value, &float8);
    struct pg_bits bits;
    if (pg_read_bits(value, &bits)) {
        uint8_t *digits = malloc(bits.count + 1);
        for (uint32_t i = 0; i < bits.count; i++)
            digits[i] = (uint8_t)('0' + pg_bit(&bits, i));
        check_same(pg_put_bits(&buffer, (struct pg_span){digits, bits.count}), value);
        free(digits);
    }
    buffer.length = 0;
    struct pg_span text;
    if (pg_read_versioned(value, &text)) check_same(pg_put_versioned(&buffer, text), value);
}

static void try_geometry(struct pg_span value)
{
    struct pg_point point, two[2];
    struct pg_line line;
    struct pg_circle circle;
    struct pg_points points;
    pg_read_point(value, &point);
    pg_read_two_points(value, two);
    pg_read_line(value, &line);
    if (pg_read_circle(value, &circle)) check(!(circle.radius < 0), "a radius");
    for (int polygon = 0; polygon < 2; polygon++)
        if (polygon ? pg_read_polygon(value, &points) : pg_read_path(value, &points))
            for (uint32_t i = 0; i < points.count; i++)
                pg_point_of(&points, i);
}

static void try_array(struct pg_span value)
{
    struct pg_array array;
    struct pg_span element;
    if (!pg_array_begin(value, &array)) return;
    while (pg_array_next(&array, &element)) {
        check_inside(element, value);
        check(element.at || array.nulls, "a NULL that was not announced");
    }
}

static void try_ranges(struct pg_span value)
{
    struct pg_range range;
    struct pg_elements ranges;
    if (pg_read_range(value, &range)) {
        check_inside(range.lower, value);
        check_inside(range.upper, value);
    }
    if (!pg_multirange_begin(value, &ranges)) return;
    while (pg_multirange_next(&ranges, &range)) {
        check_inside(range.lower, value);
        check_inside(range.upper, value);
    }
}

static void try_pairs(struct pg_span value)
{
    struct pg_elements elements;
    struct pg_span first, second;
    uint32_t type;
    if (pg_composite_begin(value, &elements))
        while (pg_composite_next(&elements, &type, &first))
            check_inside(first, value);
    if (!pg_hstore_begin(value, &elements)) return;
    while (pg_hstore_next(&elements, &first, &second)) {
        check_inside(first, value);
        check_inside(second, value);
    }
}

static void try_lexemes(struct pg_span value)
{
    struct pg_elements lexemes;
    struct pg_lexeme lexeme;
    if (pg_tsvector_begin(value, &lexemes))
        while (pg_tsvector_next(&lexemes, &lexeme)) {
            check_inside(lexeme.text, value);
            char weight;
            for (uint16_t i = 0; i < lexeme.count; i++)
                check(pg_lexeme_position(&lexeme, i, &weight) <= 0x3fff && weight >= 'A' && weight <= 'D',
                      "a position");
        }
    struct pg_vector vector;
    if (!pg_read_vector(value, &vector)) return;
    for (uint16_t i = 0; i < vector.count; i++)
        pg_vector_number(&vector, i);
}

static void try_input(const uint8_t *p, const uint8_t *end)
{
    static void (*const tries[])(struct pg_span) = {try_scalars, try_numeric,  try_numeric_text, try_time,
                                                    try_network, try_geometry, try_array,        try_ranges,
                                                    try_pairs,   try_lexemes};
    if (p == end) return;
    struct pg_span value = {p + 1, (size_t)(end - p - 1)};
    buffer = (struct pg_buffer){.grow = grow};
    tries[*p % (sizeof tries / sizeof *tries)](value);
    free(buffer.at);
}

int main(int argc, char **argv)
{
    static const char tells[] = "\0\1\2\3\4\5\6\7\10\11\12\17\20\30\377\177\200\300\360\320\10019.-+eE{:";
    return fuzz(argc, argv, tells, sizeof tells - 1, 16);
}
