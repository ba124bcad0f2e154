// Throws bytes at the parsers of wire/wire_http.c, alone, under sanitizers: http_fuzz CORPUS INPUTS SEED
//
// Each input is a file of the corpus, changed a little, in memory of exactly its size. The sanitizers check accesses;
// this checks that a parser's answer lies within its input.
#include "wire/wire_http.h"

#include "fuzz.h"

static void check_span(struct wire_http_span span, const uint8_t *p, const uint8_t *end)
{
    if (!span.at) return;
    check(span.at >= p && span.at <= end && span.length <= (size_t)(end - span.at), "a span leaves its input");
}

static void try_line(const uint8_t *p, const uint8_t *end)
{
    size_t length = (size_t)(end - p);
    check(wire_http_chopped(p, length) <= length, "a chopped line is longer");
    struct wire_http_status status;
    if (wire_http_status_line(p, p + wire_http_chopped(p, length), &status)) {
        check_span(status.version, p, end);
        check_span(status.code, p, end);
        check_span(status.message, p, end);
        check(status.code.length == 3, "a code has three digits");
    }
    for (int way = 0; way < 4; way++) {
        struct wire_http_field field;
        enum wire_http_line kind = wire_http_header_line(p, end, way & 1, way >> 1, &field);
        check_span(field.name, p, end);
        check_span(field.value, p, end);
        check(kind != HTTP_LINE_CONTINUATION || way >> 1, "nothing is there to be continued");
        check(kind != HTTP_LINE_FIELD || (field.name.at && field.value.at), "a field has both parts");
        if (field.plain && field.value.length)
            check(!memchr(field.value.at, '\r', field.value.length), "a plain value has a CR");
        if (kind != HTTP_LINE_FIELD) continue;
        uint8_t *capitalized = malloc(field.name.length + 1);
        check(wire_http_capitalize(field.name.at, field.name.length, capitalized) <= field.name.length, "a name grows");
        free(capitalized);
    }
    uint64_t number;
    wire_http_chunk_size(p, end, &number);
    if (wire_http_plain_number(p, end, &number)) check(number < UINT64_C(1000000000000000000), "a number of 18 digits");
}

static void try_input(const uint8_t *input, const uint8_t *end)
{
    size_t length = (size_t)(end - input);
    bool high = false;
    for (size_t i = 0; i < length; i++)
        high = high || input[i] & 0x80;
    check(wire_http_any_high(input, length) == high, "bytes above 127");
    const uint8_t *p = input;
    while (p < end) {
        const uint8_t *line_end = memchr(p, '\n', (size_t)(end - p));
        const uint8_t *next = line_end ? line_end + 1 : end;
        try_line(p, next);
        p = next;
    }
    try_line(input, end);
}

int main(int argc, char **argv)
{
    static const char tells[] = "\r\n: \t\0-/;.0aF\xff\x7f";
    return fuzz(argc, argv, tells, sizeof tells - 1, 1);
}
