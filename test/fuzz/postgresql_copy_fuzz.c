// Throws bytes at wire/postgresql/copy.c, alone, under sanitizers; see fuzz.h. What was decoded is encoded again
// and decoded again, and has to be the same.
#include "wire/postgresql/messages.h"
#include "wire/postgresql/copy.h"

#include "fuzz.h"

static bool grow(struct pg_buffer *buffer, size_t room)
{
    size_t capacity = buffer->length + room; // exactly, for the sanitizer to see a byte too many
    buffer->at = realloc(buffer->at, capacity);
    buffer->capacity = capacity;
    return true;
}

static const struct pg_copy_csv other_csv = {';', '\'', '\\', {(const uint8_t *)"null", 4}};
static const struct pg_copy_text other_text = {'|', {(const uint8_t *)"null", 4}};

struct form {
    const struct pg_copy_text *text; // or
    const struct pg_copy_csv *csv;
};

static enum pg_parsed take_part(struct form form, const uint8_t *p, const uint8_t *end, bool last,
                                struct pg_copy_scan *scan, struct pg_span *record, const uint8_t **next)
{
    bool end_of_data;
    return form.text ? pg_copy_text_line(p, end, last, scan, record, next, &end_of_data)
                     : pg_copy_csv_record(form.csv, p, end, last, scan, record, next, &end_of_data);
}

static enum pg_parsed take_record(struct form form, const uint8_t *p, const uint8_t *end, bool last,
                                  struct pg_span *record, const uint8_t **next)
{
    struct pg_copy_scan scan = {0};
    return take_part(form, p, end, last, &scan, record, next);
}

// The same record, from bytes that come in pieces.
static void try_pieces(struct form form, const uint8_t *p, const uint8_t *end, enum pg_parsed whole,
                       struct pg_span record, const uint8_t *next)
{
    struct pg_copy_scan scan = {0};
    struct pg_span again;
    const uint8_t *to = p, *behind = NULL;
    enum pg_parsed parsed = PG_MORE;
    while (parsed == PG_MORE && to < end) {
        to += 1 + random_below(end - to > 64 ? 64 : 3);
        if (to > end) to = end;
        parsed = take_part(form, p, to, false, &scan, &again, &behind);
        check(scan.seen <= (size_t)(to - p), "more was read than there is");
    }
    if (parsed == PG_MORE) parsed = take_part(form, p, end, true, &scan, &again, &behind);
    check(parsed == whole, "the end of a record in pieces");
    check(parsed != PG_DONE || (again.at == record.at && again.length == record.length && behind == next),
          "another record in pieces");
}

static bool next_field(struct form form, struct pg_copy_fields *fields, struct pg_copy_field *field)
{
    return form.text ? pg_copy_text_next(form.text, fields, field) : pg_copy_csv_next(form.csv, fields, field);
}

// The value of a field, in memory of exactly the size that it may take.
static struct pg_span decode(struct form form, const struct pg_copy_field *field)
{
    if (!field->raw.at) return field->raw;
    uint8_t *out = malloc(field->raw.length ? field->raw.length : 1);
    size_t length = form.text ? pg_copy_text_decode(field->raw, out) : pg_copy_csv_decode(form.csv, field->raw, out);
    check(length <= field->raw.length, "a value is longer than its field");
    if (!field->encoded) check(length == field->raw.length && memcmp(out, field->raw.at, length) == 0, "a plain field");
    return (struct pg_span){out, length};
}

static void try_record(struct form form, struct pg_span record)
{
    struct pg_copy_fields fields;
    struct pg_copy_field field;
    struct pg_span values[64];
    size_t count = 0;
    struct pg_buffer buffer = {.grow = grow};
    pg_copy_fields_begin(&fields, record);
    while (count < 64 && next_field(form, &fields, &field)) {
        check(!field.raw.at ||
                  (field.raw.at >= record.at && field.raw.at + field.raw.length <= record.at + record.length),
              "a field leaves its record");
        values[count++] = decode(form, &field);
    }
    check(count > 0, "a record without a field");
    for (size_t i = 0; i < count; i++) {
        if (i > 0) pg_put_8(&buffer, form.text ? form.text->delimiter : form.csv->delimiter);
        check(!(form.text ? pg_put_copy_text(&buffer, form.text, values[i])
                          : pg_put_copy_csv(&buffer, form.csv, values[i], count == 1)),
              "a value that cannot be written");
    }
    pg_put_8(&buffer, '\n');
    struct pg_span again;
    const uint8_t *next;
    check(take_record(form, buffer.at, buffer.at + buffer.length, false, &again, &next) == PG_DONE, "a record's end");
    check(next == buffer.at + buffer.length, "another record's end");
    pg_copy_fields_begin(&fields, again);
    for (size_t i = 0; i < count; i++) {
        check(next_field(form, &fields, &field), "a field is missing");
        struct pg_span value = decode(form, &field);
        check(!value.at == !values[i].at && value.length == values[i].length, "another value");
        check(value.length == 0 || memcmp(value.at, values[i].at, value.length) == 0, "other bytes");
        free((void *)value.at);
        free((void *)values[i].at);
    }
    check(!next_field(form, &fields, &field), "one field too many");
    free(buffer.at);
}

static void try_records(struct form form, const uint8_t *p, const uint8_t *end)
{
    struct pg_span record, less;
    const uint8_t *next, *unused;
    enum pg_parsed parsed;
    for (;;) {
        parsed = take_record(form, p, end, true, &record, &next);
        try_pieces(form, p, end, parsed, record, next);
        if (parsed != PG_DONE) break;
        check(next > p && next <= end && record.at == p && record.at + record.length <= next, "a record's bytes");
        check(take_record(form, p, record.at + record.length, false, &less, &unused) == PG_MORE,
              "a record's end is there");
        try_record(form, record);
        p = next;
    }
    check(parsed == PG_INVALID || p == end, "a record is left");
}

// The same tuple, from bytes that come in pieces.
static void try_tuple_in_pieces(const uint8_t *p, const uint8_t *end, enum pg_parsed whole, struct pg_span tuple,
                                const uint8_t *next)
{
    struct pg_copy_scan scan = {0};
    struct pg_span again;
    const uint8_t *to = p, *behind = NULL;
    enum pg_parsed parsed = PG_MORE;
    while (parsed == PG_MORE && to < end) {
        to += 1 + random_below(end - to > 64 ? 64 : 3);
        if (to > end) to = end;
        parsed = pg_copy_binary_tuple(p, to, &scan, &again, &behind);
        check(scan.seen <= (size_t)(to - p), "more was read than there is");
    }
    check(parsed == whole, "the end of a tuple in pieces");
    check(parsed != PG_DONE || (again.at == tuple.at && again.length == tuple.length && behind == next),
          "another tuple in pieces");
}

// A header, the tuple and a trailer.
static void try_written(const struct pg_buffer *buffer, struct pg_span tuple)
{
    const uint8_t *at, *end = buffer->at + buffer->length;
    struct pg_copy_scan scan = {0};
    struct pg_span again;
    check(pg_copy_binary_header(buffer->at, end, &at) == PG_DONE, "a header that was written");
    check(pg_copy_binary_tuple(at, end, &scan, &again, &at) == PG_DONE, "a tuple that was written");
    check(again.length == tuple.length, "another tuple is read");
    check(pg_copy_binary_tuple(at, end, &scan, &again, &at) == PG_DONE && !again.at && at == end, "a trailer");
}

static void try_binary(const uint8_t *p, const uint8_t *end)
{
    const uint8_t *next;
    if (pg_copy_binary_header(p, end, &next) == PG_DONE) {
        check(next > p && next <= end, "a header leaves its input");
        check(pg_copy_binary_header(p, next - 1, &next) == PG_MORE, "a header that lacks a byte");
        p = next;
    }
    struct pg_span tuple, value;
    for (;;) {
        struct pg_copy_scan scan = {0};
        enum pg_parsed parsed = pg_copy_binary_tuple(p, end, &scan, &tuple, &next);
        try_tuple_in_pieces(p, end, parsed, tuple, next);
        if (parsed != PG_DONE) break;
        check(next > p && next <= end, "a tuple leaves its input");
        p = next;
        if (!tuple.at) continue;
        uint16_t count = pg_load_16(tuple.at);
        const uint8_t *at = tuple.at + 2;
        struct pg_buffer buffer = {.grow = grow};
        check(!pg_put_copy_binary_header(&buffer), "a header that cannot be written");
        size_t begin = buffer.length;
        check(!pg_put_copy_binary_tuple(&buffer, count), "a tuple that cannot be written");
        for (; count > 0; count--) {
            check(pg_take_value(&at, tuple.at + tuple.length, &value), "a value of a tuple");
            check(!(value.at ? pg_put_value(&buffer, value) : pg_put_null(&buffer)), "a value that cannot be written");
        }
        check(at == next, "bytes behind a tuple");
        check(!pg_put_copy_binary_trailer(&buffer), "a trailer that cannot be written");
        check(buffer.length - begin == tuple.length + 2 && memcmp(buffer.at + begin, tuple.at, tuple.length) == 0,
              "another tuple was written");
        try_written(&buffer, tuple);
        free(buffer.at);
    }
}

static void try_input(const uint8_t *p, const uint8_t *end)
{
    try_records((struct form){.text = &pg_copy_text_default}, p, end);
    try_records((struct form){.text = &other_text}, p, end);
    try_records((struct form){.csv = &pg_copy_csv_default}, p, end);
    try_records((struct form){.csv = &other_csv}, p, end);
    try_binary(p, end);
}

int main(int argc, char **argv)
{
    static const char tells[] = "\\\t\n\r\"',;|Nx017.bfnrtvul\0\1\377";
    return fuzz(argc, argv, tells, sizeof tells - 1, 8);
}
