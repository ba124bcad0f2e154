// Throws bytes at the parsers of wire/http.c, alone, under sanitizers: http_fuzz CORPUS INPUTS SEED
//
// Each input is a file of the corpus, changed a little, in memory of exactly its size. Besides what the sanitizers see, what
// a parser answers must lie within what it was given.
#include "wire/http.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state;

static uint32_t random_below(uint32_t limit)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return limit ? (uint32_t)(state >> 33) % limit : 0;
}

static void check(int truth, const char *what)
{
    if (truth) return;
    fprintf(stderr, "http_fuzz: %s\n", what);
    abort();
}

static void check_span(struct http_span span, const uint8_t *p, const uint8_t *end)
{
    if (!span.at) return;
    check(span.at >= p && span.at <= end && span.length <= (size_t)(end - span.at), "a span leaves its input");
}

static void try_line(const uint8_t *p, const uint8_t *end)
{
    size_t length = (size_t)(end - p);
    check(http_chopped(p, length) <= length, "a chopped line is longer");
    struct http_status status;
    if (http_status_line(p, p + http_chopped(p, length), &status)) {
        check_span(status.version, p, end);
        check_span(status.code, p, end);
        check_span(status.message, p, end);
        check(status.code.length == 3, "a code has three digits");
    }
    for (int way = 0; way < 4; way++) {
        struct http_field field;
        enum http_line kind = http_header_line(p, end, way & 1, way >> 1, &field);
        check_span(field.name, p, end);
        check_span(field.value, p, end);
        check(kind != HTTP_LINE_CONTINUATION || way >> 1, "nothing is there to be continued");
        check(kind != HTTP_LINE_FIELD || (field.name.at && field.value.at), "a field has both parts");
        if (field.plain && field.value.length) check(!memchr(field.value.at, '\r', field.value.length), "a plain value has a CR");
        if (kind != HTTP_LINE_FIELD) continue;
        uint8_t *capitalized = malloc(field.name.length + 1);
        check(http_capitalize(field.name.at, field.name.length, capitalized) <= field.name.length, "a name grows");
        free(capitalized);
    }
    uint64_t number;
    http_chunk_size(p, end, &number);
    if (http_plain_number(p, end, &number)) check(number < UINT64_C(1000000000000000000), "a number of 18 digits");
}

static void try_input(const uint8_t *bytes, size_t length)
{
    uint8_t *input = calloc(length ? length : 1, 1); // of this size, so that one byte more is seen
    if (length) memcpy(input, bytes, length);
    bool high = false;
    for (size_t i = 0; i < length; i++)
        high = high || input[i] & 0x80;
    check(http_any_high(input, length) == high, "bytes above 127");
    const uint8_t *p = input, *end = input + length;
    while (p < end) {
        const uint8_t *line_end = memchr(p, '\n', (size_t)(end - p));
        const uint8_t *next = line_end ? line_end + 1 : end;
        try_line(p, next);
        p = next;
    }
    try_line(input, end);
    free(input);
}

enum { LARGEST = 4096, MOST = 256 };
static struct seed {
    uint8_t bytes[LARGEST];
    size_t length;
} seeds[MOST];
static uint32_t count;

static void load(const char *folder)
{
    DIR *directory = opendir(folder);
    check(directory != NULL, "there is no corpus");
    for (struct dirent *entry; (entry = readdir(directory)) && count < MOST;) {
        char path[1024];
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (entry->d_name[0] == '.') continue;
        FILE *file = fopen(path, "rb");
        check(file != NULL, "a file of the corpus cannot be read");
        seeds[count].length = fread(seeds[count].bytes, 1, LARGEST, file);
        count++;
        fclose(file);
    }
    closedir(directory);
    check(count > 0, "the corpus is empty");
}

static size_t mutate(uint8_t *bytes, size_t length)
{
    static const char telling[] = "\r\n: \t\0-/;.0aF\xff\x7f";
    for (uint32_t changes = 1 + random_below(6); changes; changes--) {
        uint32_t at = random_below((uint32_t)length + 1);
        switch (random_below(5)) {
        case 0:
            if (at < length) bytes[at] = (uint8_t)telling[random_below(sizeof telling - 1)];
            break;
        case 1:
            if (at < length) bytes[at] = (uint8_t)random_below(256);
            break;
        case 2: // less
            if (at < length) {
                memmove(bytes + at, bytes + at + 1, length - at - 1);
                length--;
            }
            break;
        case 3: // more
            if (length < LARGEST) {
                memmove(bytes + at + 1, bytes + at, length - at);
                bytes[at] = (uint8_t)telling[random_below(sizeof telling - 1)];
                length++;
            }
            break;
        default: length = at; break;
        }
    }
    return length;
}

int main(int argc, char **argv)
{
    check(argc == 4, "usage: http_fuzz CORPUS INPUTS SEED");
    state = strtoull(argv[3], NULL, 10) * 2654435761u + 88172645463325252ull;
    load(argv[1]);
    for (uint32_t i = 0; i < count; i++)
        try_input(seeds[i].bytes, seeds[i].length);
    uint64_t inputs = strtoull(argv[2], NULL, 10);
    static uint8_t bytes[LARGEST + 1];
    for (uint64_t i = 0; i < inputs; i++) {
        const struct seed *seed = &seeds[random_below(count)];
        memcpy(bytes, seed->bytes, seed->length);
        try_input(bytes, mutate(bytes, seed->length));
    }
    printf("http_fuzz: %llu inputs from %u files\n", (unsigned long long)inputs, count);
    return 0;
}
