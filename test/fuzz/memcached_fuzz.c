// Throws bytes at wire/memcached.c, alone, under sanitizers: memcached_fuzz CORPUS INPUTS SEED
//
// Each input is a file of the corpus, changed a little, in memory of exactly its size: replies are read from it, and requests
// are made of it. Besides what the sanitizers see, an answer must lie within its input, must not change when more bytes
// follow, and no key whatever may put a second line into a request.
#include "wire/memcached.h"

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

static uint64_t random_number(void)
{
    uint64_t number =
        (uint64_t)random_below(1u << 31) << 33 ^ (uint64_t)random_below(1u << 31) << 8 ^ random_below(256);
    return number >> random_below(64);
}

static void check(int truth, const char *what)
{
    if (truth) return;
    fprintf(stderr, "memcached_fuzz: %s\n", what);
    abort();
}

static void check_reply(const struct memcached_reply *reply, const uint8_t *p, const uint8_t *end)
{
    check(reply->length >= 4 && reply->length <= (size_t)(end - p), "a line leaves its input");
    check(p[reply->length - 1] == '\n' && p[reply->length - 2] == '\r', "a line has no end");
    check(!memchr(p, '\n', reply->length - 1), "a line has two ends");
    if (reply->text)
        check(reply->text >= p && reply->text + reply->text_length == p + reply->length - 2, "a text leaves its line");
    check(reply->value_length <= (size_t)1 << 30, "a value is too large");
    check(reply->status == MEMCACHED_VA || !reply->value_length, "a value without VA");
}

static void try_replies(const uint8_t *p, const uint8_t *end)
{
    while (p < end) {
        struct memcached_reply reply, shorter;
        enum memcached_parsed parsed = memcached_reply(p, end, &reply);
        if (parsed != MEMCACHED_DONE) {
            check(parsed == MEMCACHED_INVALID || !memchr(p, '\n', (size_t)(end - p)), "a whole line wants more");
            return;
        }
        check_reply(&reply, p, end);
        check(memcached_reply(p, p + reply.length, &shorter) == MEMCACHED_DONE, "a line depends on what follows it");
        check(!memcmp(&reply, &shorter, sizeof reply), "a line says something else when more follows it");
        check(memcached_reply(p, p + reply.length - 1, &shorter) == MEMCACHED_MORE, "a line is whole before its end");
        p += reply.length;
        if (reply.value_length + 2 <= (size_t)(end - p)) p += reply.status == MEMCACHED_VA ? reply.value_length + 2 : 0;
    }
}

static void try_request(const uint8_t *key, size_t length)
{
    enum memcached_key kind = memcached_key(key, length);
    check((kind == MEMCACHED_KEY_EMPTY) == (length == 0), "an empty key");
    if (kind == MEMCACHED_KEY_EMPTY || kind == MEMCACHED_KEY_TOO_LONG) return;
    static const char modes[] = "EAPRSID";
    struct memcached_request request = {
        .verb = random_below(4),
        .fields = (unsigned)random_number(),
        .key = key,
        .key_length = length,
        .key_encoded = kind == MEMCACHED_KEY_ENCODED,
        .value_length = random_below(1u << 30),
        .opaque = (uint32_t)random_number(),
        .flags = (uint32_t)random_number(),
        .cas = random_number(),
        .delta = random_number(),
        .initial = random_number(),
        .ttl = (int32_t)random_number(),
        .vivify = (int32_t)random_number(),
        .recache = (int32_t)random_number(),
        .mode = modes[random_below(sizeof modes - 1)],
    };
    uint8_t *line = malloc(MEMCACHED_REQUEST_MOST);
    size_t written = memcached_write(&request, line);
    check(written <= MEMCACHED_REQUEST_MOST && written > 4, "the size of a request");
    check(line[written - 2] == '\r' && line[written - 1] == '\n', "the end of a request");
    for (size_t i = 0; i < written - 2; i++)
        check(line[i] >= ' ' && line[i] < 0x7f, "a request with a control character");
    const uint8_t *key_end = memchr(line + 3, ' ', written - 3);
    check(key_end && key_end - (line + 3) <= MEMCACHED_KEY_MOST, "the key of a request");
    check(request.key_encoded || !memcmp(line + 3, key, length), "a key that was changed");
    free(line);
}

static void try_input(const uint8_t *bytes, size_t length)
{
    uint8_t *input = calloc(length ? length : 1, 1); // of this size, so that one byte more is seen
    if (length) memcpy(input, bytes, length);
    try_replies(input, input + length);
    size_t key = random_below(300);
    try_request(input, length < key ? length : key);
    uint64_t number;
    size_t digits = length < 24 ? length : random_below(24);
    memcached_number(input, input + digits, &number);
    memcached_crc32(input, length);
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
    static const char telling[] = "\r\n \0-09fcthlsOWXZqk\xff\x7f";
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
        default:
            if (random_below(4) == 0) length = at;
            break;
        }
    }
    return length;
}

int main(int argc, char **argv)
{
    check(argc == 4, "usage: memcached_fuzz CORPUS INPUTS SEED");
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
    printf("memcached_fuzz: %llu inputs from %u files\n", (unsigned long long)inputs, count);
    return 0;
}
