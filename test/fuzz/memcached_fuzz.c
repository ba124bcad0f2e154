// Throws bytes at wire/memcached/messages.c, alone, under sanitizers: memcached_fuzz CORPUS INPUTS SEED
//
// Each input is a file of the corpus, changed a little, in memory of exactly its size: replies are read from it, and
// requests are made of it. The sanitizers check accesses; this checks that an answer lies within its input and does not
// change when more bytes follow, and that no key can put a second line into a request.
#include "wire/memcached/messages.h"

#include "fuzz.h"

static uint64_t random_number(void)
{
    uint64_t number =
        (uint64_t)random_below(1u << 31) << 33 ^ (uint64_t)random_below(1u << 31) << 8 ^ random_below(256);
    return number >> random_below(64);
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

static void try_input(const uint8_t *input, const uint8_t *end)
{
    size_t length = (size_t)(end - input);
    try_replies(input, input + length);
    size_t key = random_below(300);
    try_request(input, length < key ? length : key);
    uint64_t number;
    size_t digits = length < 24 ? length : random_below(24);
    memcached_number(input, input + digits, &number);
    memcached_crc32(input, length);
}

int main(int argc, char **argv)
{
    static const char tells[] = "\r\n \0-09fcthlsOWXZqk\xff\x7f";
    return fuzz(argc, argv, tells, sizeof tells - 1, 4);
}
