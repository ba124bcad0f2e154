#include "wire/memcached.h"

#include <string.h>

// ---- keys

static size_t encoded_length(size_t length)
{
    return (length + 2) / 3 * 4;
}

enum memcached_key memcached_key(const uint8_t *p, size_t length)
{
    if (length == 0) return MEMCACHED_KEY_EMPTY;
    if (length > MEMCACHED_KEY_MOST) return MEMCACHED_KEY_TOO_LONG;
    bool odd = false;
    for (size_t i = 0; i < length; i++)
        odd |= p[i] <= ' ' || p[i] >= 0x7f;
    if (!odd) return MEMCACHED_KEY_PLAIN;
    return encoded_length(length) > MEMCACHED_KEY_MOST ? MEMCACHED_KEY_TOO_LONG : MEMCACHED_KEY_ENCODED;
}

// ---- requests

static uint8_t *put_number(uint8_t *out, uint64_t number)
{
    uint8_t digits[20];
    size_t count = 0;
    do {
        digits[count++] = (uint8_t)('0' + number % 10);
        number /= 10;
    } while (number);
    while (count)
        *out++ = digits[--count];
    return out;
}

static uint8_t *put_field(uint8_t *out, char name, uint64_t number)
{
    *out++ = ' ';
    *out++ = (uint8_t)name;
    return put_number(out, number);
}

static uint8_t *put_signed(uint8_t *out, char name, int32_t number)
{
    *out++ = ' ';
    *out++ = (uint8_t)name;
    if (number < 0) *out++ = '-';
    return put_number(out, number < 0 ? (uint64_t) - (int64_t)number : (uint64_t)number);
}

static uint8_t *put_word(uint8_t *out, char name)
{
    *out++ = ' ';
    *out++ = (uint8_t)name;
    return out;
}

static uint8_t *put_base64(uint8_t *out, const uint8_t *p, size_t length)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < length; i += 3) {
        uint32_t three = (uint32_t)p[i] << 16;
        if (i + 1 < length) three |= (uint32_t)p[i + 1] << 8;
        if (i + 2 < length) three |= p[i + 2];
        *out++ = (uint8_t)letters[three >> 18];
        *out++ = (uint8_t)letters[three >> 12 & 63];
        *out++ = i + 1 < length ? (uint8_t)letters[three >> 6 & 63] : '=';
        *out++ = i + 2 < length ? (uint8_t)letters[three & 63] : '=';
    }
    return out;
}

size_t memcached_write(const struct memcached_request *request, uint8_t *out)
{
    static const char verbs[] = {'g', 's', 'd', 'a'};
    uint8_t *at = out;
    unsigned fields = request->fields;
    *at++ = 'm';
    *at++ = (uint8_t)verbs[request->verb];
    *at++ = ' ';
    if (request->key_encoded) {
        at = put_base64(at, request->key, request->key_length);
    } else {
        memcpy(at, request->key, request->key_length);
        at += request->key_length;
    }
    if (request->verb == MEMCACHED_SET) {
        *at++ = ' ';
        at = put_number(at, request->value_length);
    }
    if (request->key_encoded) at = put_word(at, 'b');
    if (fields & MEMCACHED_WANT_VALUE) at = put_word(at, 'v');
    if (fields & MEMCACHED_WANT_FLAGS) at = put_word(at, 'f');
    if (fields & MEMCACHED_WANT_CAS) at = put_word(at, 'c');
    if (fields & MEMCACHED_WANT_TTL) at = put_word(at, 't');
    if (fields & MEMCACHED_WANT_HIT) at = put_word(at, 'h');
    if (fields & MEMCACHED_WANT_ACCESS) at = put_word(at, 'l');
    if (fields & MEMCACHED_QUIET) at = put_word(at, 'q');
    if (fields & MEMCACHED_INVALIDATE) at = put_word(at, 'I');
    if (fields & MEMCACHED_SEND_MODE) {
        at = put_word(at, 'M');
        *at++ = (uint8_t)request->mode;
    }
    if (fields & MEMCACHED_SEND_FLAGS) at = put_field(at, 'F', request->flags);
    if (fields & MEMCACHED_SEND_TTL) at = put_signed(at, 'T', request->ttl);
    if (fields & MEMCACHED_SEND_CAS) at = put_field(at, 'C', request->cas);
    if (fields & MEMCACHED_SEND_VIVIFY) at = put_signed(at, 'N', request->vivify);
    if (fields & MEMCACHED_SEND_RECACHE) at = put_signed(at, 'R', request->recache);
    if (fields & MEMCACHED_SEND_DELTA) at = put_field(at, 'D', request->delta);
    if (fields & MEMCACHED_SEND_INITIAL) at = put_field(at, 'J', request->initial);
    at = put_field(at, 'O', request->opaque);
    *at++ = '\r';
    *at++ = '\n';
    return (size_t)(at - out);
}

// ---- replies

bool memcached_number(const uint8_t *p, const uint8_t *end, uint64_t *number)
{
    if (p == end || end - p > 20) return false;
    uint64_t value = 0;
    for (; p < end; p++) {
        unsigned digit = (unsigned)*p - '0';
        if (digit > 9) return false;
        if (value > UINT64_MAX / 10 || value * 10 > UINT64_MAX - digit) return false;
        value = value * 10 + digit;
    }
    *number = value;
    return true;
}

static bool small_number(const uint8_t *p, const uint8_t *end, uint32_t *number)
{
    uint64_t value;
    if (!memcached_number(p, end, &value) || value > UINT32_MAX) return false;
    *number = (uint32_t)value;
    return true;
}

static bool signed_number(const uint8_t *p, const uint8_t *end, int64_t *number)
{
    bool minus = p < end && *p == '-';
    uint64_t value;
    if (!memcached_number(p + minus, end, &value) || value > INT64_MAX) return false;
    *number = minus ? -(int64_t)value : (int64_t)value;
    return true;
}

// One of the fields behind the status, such as "f4".
static bool read_field(const uint8_t *p, const uint8_t *end, struct memcached_reply *reply)
{
    unsigned field;
    bool right;
    uint64_t number = 0;
    const uint8_t *value = p + 1;
    switch (*p) {
    case 'f':
        field = MEMCACHED_HAS_FLAGS, right = small_number(value, end, &reply->flags);
        break;
    case 'c':
        field = MEMCACHED_HAS_CAS, right = memcached_number(value, end, &reply->cas);
        break;
    case 't':
        field = MEMCACHED_HAS_TTL, right = signed_number(value, end, &reply->ttl);
        break;
    case 'l':
        field = MEMCACHED_HAS_ACCESS, right = memcached_number(value, end, &reply->access);
        break;
    case 's':
        field = MEMCACHED_HAS_SIZE, right = memcached_number(value, end, &reply->size);
        break;
    case 'O':
        field = MEMCACHED_HAS_OPAQUE, right = small_number(value, end, &reply->opaque);
        break;
    case 'h':
        field = MEMCACHED_HAS_HIT, right = memcached_number(value, end, &number) && number < 2;
        reply->hit = number == 1;
        break;
    case 'W':
        field = MEMCACHED_WON, right = value == end;
        break;
    case 'X':
        field = MEMCACHED_STALE, right = value == end;
        break;
    case 'Z':
        field = MEMCACHED_WAITING, right = value == end;
        break;
    default:
        return false;
    }
    if (!right || reply->fields & field) return false;
    reply->fields |= field;
    return true;
}

static bool read_fields(const uint8_t *p, const uint8_t *end, struct memcached_reply *reply)
{
    while (p < end) {
        if (*p++ != ' ') return false;
        // 1.6.18 ends a status that has no fields with a space.
        if (p == end) return true;
        const uint8_t *next = memchr(p, ' ', (size_t)(end - p));
        const uint8_t *field_end = next ? next : end;
        if (p == field_end || !read_field(p, field_end, reply)) return false;
        p = field_end;
    }
    return true;
}

static bool begins(const uint8_t *p, const uint8_t *end, const char *word, size_t length)
{
    return (size_t)(end - p) >= length && memcmp(p, word, length) == 0;
}

// The statuses of more than two letters.
static bool read_words(const uint8_t *p, const uint8_t *end, struct memcached_reply *reply)
{
    static const struct {
        const char *word;
        enum memcached_status status;
        bool has_text;
    } words[] = {{"STAT ", MEMCACHED_STAT, true},
                 {"END", MEMCACHED_END, false},
                 {"VERSION ", MEMCACHED_VERSION, true},
                 {"STORED", MEMCACHED_STORED, false},
                 {"RESET", MEMCACHED_RESET, false},
                 {"ERROR", MEMCACHED_ERROR, false},
                 {"CLIENT_ERROR ", MEMCACHED_CLIENT_ERROR, true},
                 {"SERVER_ERROR ", MEMCACHED_SERVER_ERROR, true}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t length = strlen(words[i].word);
        if (!begins(p, end, words[i].word, length)) continue;
        reply->status = words[i].status;
        if (!words[i].has_text) return (size_t)(end - p) == length;
        reply->text = p + length;
        reply->text_length = (size_t)(end - reply->text);
        return true;
    }
    return false;
}

static bool read_line(const uint8_t *p, const uint8_t *end, struct memcached_reply *reply)
{
    if (end - p < 2) return false;
    if (end - p > 2 && p[2] != ' ') return read_words(p, end, reply);
    const uint8_t *rest = p + 2;
    switch (p[0] << 8 | p[1]) {
    case 'H' << 8 | 'D':
        reply->status = MEMCACHED_HD;
        break;
    case 'E' << 8 | 'N':
        reply->status = MEMCACHED_EN;
        break;
    case 'N' << 8 | 'S':
        reply->status = MEMCACHED_NS;
        break;
    case 'E' << 8 | 'X':
        reply->status = MEMCACHED_EX;
        break;
    case 'N' << 8 | 'F':
        reply->status = MEMCACHED_NF;
        break;
    case 'M' << 8 | 'N':
        reply->status = MEMCACHED_MN;
        return rest == end;
    case 'O' << 8 | 'K':
        reply->status = MEMCACHED_OK;
        return rest == end;
    case 'M' << 8 | 'E':
        reply->status = MEMCACHED_ME;
        reply->text = rest + (rest < end);
        reply->text_length = (size_t)(end - reply->text);
        return true;
    case 'V' << 8 | 'A': {
        reply->status = MEMCACHED_VA;
        if (rest == end) return false;
        const uint8_t *size = ++rest;
        while (rest < end && *rest != ' ')
            rest++;
        uint64_t length;
        // The largest that a server can be told to hold is 1 GiB.
        if (!memcached_number(size, rest, &length) || length > (UINT64_C(1) << 30)) return false;
        reply->value_length = (size_t)length;
        break;
    }
    default:
        return false;
    }
    return read_fields(rest, end, reply);
}

enum memcached_parsed memcached_reply(const uint8_t *p, const uint8_t *end, struct memcached_reply *reply)
{
    size_t there = (size_t)(end - p);
    size_t most = there < MEMCACHED_REPLY_MOST ? there : MEMCACHED_REPLY_MOST;
    const uint8_t *newline = there ? memchr(p, '\n', most) : NULL;
    if (!newline) return there < MEMCACHED_REPLY_MOST ? MEMCACHED_MORE : MEMCACHED_INVALID;
    memset(reply, 0, sizeof *reply);
    reply->length = (size_t)(newline - p) + 1;
    if (newline == p || newline[-1] != '\r') return MEMCACHED_INVALID;
    return read_line(p, newline - 1, reply) ? MEMCACHED_DONE : MEMCACHED_INVALID;
}

// ---- spreading

// A nibble at a time: keys are short, and the table fits in a line of the cache.
uint32_t memcached_crc32(const uint8_t *p, size_t length)
{
    static const uint32_t table[16] = {0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4,
                                       0x4db26158, 0x5005713c, 0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
                                       0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c};
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < length; i++) {
        crc ^= p[i];
        crc = table[crc & 15] ^ crc >> 4;
        crc = table[crc & 15] ^ crc >> 4;
    }
    return ~crc;
}
