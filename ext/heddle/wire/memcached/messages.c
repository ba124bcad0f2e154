#include "wire/memcached/messages.h"

#include <string.h>

// ---- keys

static size_t encoded_length(size_t length)
{
    return (length + 2) / 3 * 4;
}

// Returns whether one of eight bytes is at most ' ' or at least 0x7f. For a zero byte in x, (x - 1) & ~x has that
// byte's highest bit set; with n in place of 1, for a byte less than n.
static uint64_t odd_bytes(uint64_t x)
{
    static const uint64_t ones = UINT64_C(0x0101010101010101), highs = UINT64_C(0x8080808080808080);
    uint64_t deleted = x ^ 0x7f * ones;
    return (x | ((x - 0x21 * ones) & ~x) | ((deleted - ones) & ~deleted)) & highs;
}

enum memcached_key memcached_key(const uint8_t *p, size_t length)
{
    if (length == 0) return MEMCACHED_KEY_EMPTY;
    if (length > MEMCACHED_KEY_MOST) return MEMCACHED_KEY_TOO_LONG;
    uint64_t odd = 0, eight;
    if (length < 8) {
        for (size_t i = 0; i < length; i++)
            odd |= p[i] <= ' ' || p[i] >= 0x7f;
    } else {
        for (size_t i = 0; i < length - 8; i += 8) {
            memcpy(&eight, p + i, 8);
            odd |= odd_bytes(eight);
        }
        memcpy(&eight, p + length - 8, 8); // some bytes are checked twice
        odd |= odd_bytes(eight);
    }
    if (!odd) return MEMCACHED_KEY_PLAIN;
    return encoded_length(length) > MEMCACHED_KEY_MOST ? MEMCACHED_KEY_TOO_LONG : MEMCACHED_KEY_ENCODED;
}

// ---- requests

static uint8_t *put_number(uint8_t *out, uint64_t number)
{
    uint8_t digits[20];
    uint8_t *end = digits + sizeof digits, *first = end;
    for (; number > UINT32_MAX; number /= 10)
        *--first = (uint8_t)('0' + number % 10);
    uint32_t rest = (uint32_t)number; // most numbers are this small, and their division is cheaper
    do {
        *--first = (uint8_t)('0' + rest % 10);
        rest /= 10;
    } while (rest);
    memcpy(out, first, (size_t)(end - first));
    return out + (end - first);
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

// Reads digits. Returns the end of the digits, or NULL if there are none or the number is too large.
static const uint8_t *read_number(const uint8_t *p, const uint8_t *end, uint64_t *number)
{
    enum { SAFE = 19, MOST = 20 }; // digits that always fit, and that may fit
    const uint8_t *first = p;
    const uint8_t *safe = end - p < SAFE ? end : p + SAFE;
    uint64_t value = 0;
    for (unsigned digit; p < safe && (digit = (unsigned)*p - '0') <= 9; p++)
        value = value * 10 + digit;
    for (unsigned digit; p >= safe && p < end && (digit = (unsigned)*p - '0') <= 9; p++) {
        if (value > UINT64_MAX / 10 || value * 10 > UINT64_MAX - digit) return NULL;
        value = value * 10 + digit;
    }
    if (p == first || p - first > MOST) return NULL;
    *number = value;
    return p;
}

bool memcached_number(const uint8_t *p, const uint8_t *end, uint64_t *number)
{
    uint64_t value;
    if (p == end || read_number(p, end, &value) != end) return false;
    *number = value;
    return true;
}

static const uint8_t *read_small(const uint8_t *p, const uint8_t *end, uint32_t *number)
{
    uint64_t value = 0;
    p = read_number(p, end, &value);
    *number = (uint32_t)value;
    return value > UINT32_MAX ? NULL : p;
}

static const uint8_t *read_signed(const uint8_t *p, const uint8_t *end, int64_t *number)
{
    bool minus = p < end && *p == '-';
    uint64_t value = 0;
    p = read_number(p + minus, end, &value);
    if (value > INT64_MAX) return NULL;
    *number = minus ? -(int64_t)value : (int64_t)value;
    return p;
}

// Reads one field after the status, such as "f4". Returns its end, or NULL.
static const uint8_t *read_field(const uint8_t *p, const uint8_t *end, struct memcached_reply *reply)
{
    unsigned field;
    uint64_t number = 0;
    switch (*p++) {
    case 'f': field = MEMCACHED_HAS_FLAGS, p = read_small(p, end, &reply->flags); break;
    case 'c': field = MEMCACHED_HAS_CAS, p = read_number(p, end, &reply->cas); break;
    case 't': field = MEMCACHED_HAS_TTL, p = read_signed(p, end, &reply->ttl); break;
    case 'l': field = MEMCACHED_HAS_ACCESS, p = read_number(p, end, &reply->access); break;
    case 's': field = MEMCACHED_HAS_SIZE, p = read_number(p, end, &reply->size); break;
    case 'O': field = MEMCACHED_HAS_OPAQUE, p = read_small(p, end, &reply->opaque); break;
    case 'h':
        field = MEMCACHED_HAS_HIT, p = read_number(p, end, &number);
        reply->hit = number == 1;
        if (number > 1) return NULL;
        break;
    case 'W': field = MEMCACHED_WON; break;
    case 'X': field = MEMCACHED_STALE; break;
    case 'Z': field = MEMCACHED_WAITING; break;
    default: return NULL;
    }
    if (reply->fields & field) return NULL;
    reply->fields |= field;
    return p;
}

static bool read_fields(const uint8_t *p, const uint8_t *end, struct memcached_reply *reply)
{
    while (p && p < end) {
        if (*p++ != ' ') return false;
        // memcached 1.6.18 ends a status without fields with a space.
        if (p == end) return true;
        p = read_field(p, end, reply);
    }
    return p != NULL;
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
    case 'H' << 8 | 'D': reply->status = MEMCACHED_HD; break;
    case 'E' << 8 | 'N': reply->status = MEMCACHED_EN; break;
    case 'N' << 8 | 'S': reply->status = MEMCACHED_NS; break;
    case 'E' << 8 | 'X': reply->status = MEMCACHED_EX; break;
    case 'N' << 8 | 'F': reply->status = MEMCACHED_NF; break;
    case 'M' << 8 | 'N': reply->status = MEMCACHED_MN; return rest == end;
    case 'O' << 8 | 'K': reply->status = MEMCACHED_OK; return rest == end;
    case 'M' << 8 | 'E':
        reply->status = MEMCACHED_ME;
        reply->text = rest + (rest < end);
        reply->text_length = (size_t)(end - reply->text);
        return true;
    case 'V' << 8 | 'A': {
        reply->status = MEMCACHED_VA;
        uint64_t length = 0;
        rest = rest == end ? NULL : read_number(rest + 1, end, &length);
        // The largest value that a server can be configured to hold is 1 GiB.
        if (!rest || length > (UINT64_C(1) << 30)) return false;
        reply->value_length = (size_t)length;
        break;
    }
    default: return false;
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

// ---- sharding

// One nibble at a time: keys are short, and the table fits in a cache line.
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
