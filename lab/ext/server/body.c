#include "body.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum {
    LINE = 16,
    LINES = PATTERN_SIZE / LINE,
    CHUNK_HEAD = 6, /* "4000" CRLF */
    CHUNK_WHOLE = CHUNK_HEAD + BODY_CHUNK + 2,
    CHUNKS = PATTERN_SIZE / BODY_CHUNK,
    /* The bytes that come uncompressed first: two lines to refer to, and the zeros that begin the third. */
    STORED = 2 * LINE + 10,
    UNIT = 6, /* bytes of a compressed line */
    CHECKPOINT = 4096
};

char body_pattern[PATTERN_SIZE];
static char chunk_pattern[CHUNKS * CHUNK_WHOLE];
static char gzip_pattern[LINES * UNIT];
static uint32_t checksum_table[256];
static uint32_t checksum_at[PATTERN_SIZE / CHECKPOINT + 1]; /* of the pattern's beginning, every 4 KiB */

/* CRC-32 (ISO 3309), bits reflected. */
static const uint32_t POLYNOMIAL = UINT32_C(0xedb88320);

static uint32_t checksum(uint32_t crc, const char *bytes, size_t length)
{
    crc = ~crc;
    for (size_t i = 0; i < length; i++)
        crc = checksum_table[(crc ^ (unsigned char)bytes[i]) & 255] ^ crc >> 8;
    return ~crc;
}

/* The product of two polynomials modulo the CRC's. */
static uint32_t multiply(uint32_t a, uint32_t b)
{
    uint32_t product = 0;
    for (uint32_t bit = UINT32_C(1) << 31; bit; bit >>= 1) {
        if (a & bit) product ^= b;
        b = b & 1 ? b >> 1 ^ POLYNOMIAL : b >> 1;
    }
    return product;
}

/* x to the power of this many bytes: a CRC is multiplied by it when as many bytes follow. */
static uint32_t shift_by(uint64_t bytes)
{
    uint32_t result = UINT32_C(1) << 31, square = UINT32_C(1) << 30;
    for (uint64_t power = bytes * 8; power; power >>= 1) {
        if (power & 1) result = multiply(result, square);
        square = multiply(square, square);
    }
    return result;
}

static uint32_t pattern_checksum(uint64_t bytes)
{
    uint32_t crc = 0, pattern = checksum_at[PATTERN_SIZE / CHECKPOINT], shift = shift_by(PATTERN_SIZE);
    size_t rest = (size_t)(bytes % PATTERN_SIZE), known = rest - rest % CHECKPOINT;
    for (uint64_t i = bytes / PATTERN_SIZE; i; i--)
        crc = multiply(shift, crc) ^ pattern;
    return multiply(shift_by(rest), crc) ^
           checksum(checksum_at[known / CHECKPOINT], body_pattern + known, rest - known);
}

/* Packs bits into bytes, the least significant first, as deflate requires. */
struct bits {
    char *at;
    uint32_t held;
    int count;
};

static void put_bits(struct bits *bits, uint32_t value, int count)
{
    bits->held |= value << bits->count;
    for (bits->count += count; bits->count >= 8; bits->count -= 8, bits->held >>= 8)
        *bits->at++ = (char)bits->held;
}

/* Huffman codes come most significant bit first. */
static void put_code(struct bits *bits, uint32_t code, int count)
{
    while (count-- > 0)
        put_bits(bits, code >> count & 1, 1);
}

static void put_literal(struct bits *bits, unsigned char byte) /* below 144 */
{
    put_code(bits, 0x30u + byte, 8);
}

static uint32_t low_bits(int count)
{
    return (UINT32_C(1) << count) - 1;
}

/* A line is ten zeros, four digits, a zero and a newline. With deflate's fixed codes the four digits, and a reference
   32 bytes back to the twelve bytes before the next line's digits, take 48 bits: every line takes six bytes, and begins
   at the same bit of a byte, so the compressed pattern repeats as the pattern does. A block's head takes three bits,
   hence the lines begin at the fourth. */
enum { LENGTH_12_CODE = 265 - 256, LENGTH_12_EXTRA = 1, DISTANCE_32_CODE = 9, DISTANCE_32_EXTRA = 7, PHASE = 3 };

static void make_gzip_pattern(void)
{
    char line[UNIT + 1];
    for (size_t i = 0; i < LINES; i++) {
        struct bits bits = {.at = line, .held = low_bits(PHASE), .count = PHASE}; /* the end of the line before */
        for (int digit = 10; digit < 14; digit++)
            put_literal(&bits, (unsigned char)body_pattern[i * LINE + (size_t)digit]);
        put_code(&bits, LENGTH_12_CODE, 7);
        put_bits(&bits, LENGTH_12_EXTRA, 1);
        put_code(&bits, DISTANCE_32_CODE, 5);
        put_bits(&bits, DISTANCE_32_EXTRA, 3);
        memcpy(gzip_pattern + i * UNIT, line, UNIT);
    }
}

static void make_checksums(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ POLYNOMIAL : crc >> 1;
        checksum_table[byte] = crc;
    }
    for (size_t i = 0; i < PATTERN_SIZE / CHECKPOINT; i++)
        checksum_at[i + 1] = checksum(checksum_at[i], body_pattern + i * CHECKPOINT, CHECKPOINT);
}

void body_make_pattern(void)
{
    static const char digits[] = "0123456789abcdef";
    for (uint32_t offset = 0; offset < PATTERN_SIZE; offset += LINE) {
        uint32_t rest = offset;
        for (int i = LINE - 2; i >= 0; i--, rest >>= 4)
            body_pattern[offset + (uint32_t)i] = digits[rest & 15];
        body_pattern[offset + LINE - 1] = '\n';
    }
    for (size_t i = 0; i < CHUNKS; i++) {
        char *chunk = chunk_pattern + i * CHUNK_WHOLE;
        memcpy(chunk, "4000\r\n", CHUNK_HEAD);
        memcpy(chunk + CHUNK_HEAD, body_pattern + i * BODY_CHUNK, BODY_CHUNK);
        memcpy(chunk + CHUNK_HEAD + BODY_CHUNK, "\r\n", 2);
    }
    make_gzip_pattern();
    make_checksums();
}

static void add(struct body *body, const char *bytes, size_t period, uint64_t start, uint64_t length)
{
    if (length == 0) return;
    body->spans[body->count++] = (struct span){.bytes = bytes, .period = period, .start = start, .length = length};
    body->length += length;
}

/* Adds the bytes that were written to `small` since `from`. */
static void add_small(struct body *body, size_t from)
{
    size_t length = body->small_length - from;
    add(body, body->small + from, length, 0, length);
}

static void append(struct body *body, const void *bytes, size_t length)
{
    memcpy(body->small + body->small_length, bytes, length);
    body->small_length += length;
}

static void append_number(struct body *body, uint32_t number, int bytes) /* little endian */
{
    for (int i = 0; i < bytes; i++)
        body->small[body->small_length++] = (char)(number >> (8 * i));
}

void body_none(struct body *body)
{
    body->count = 0;
    body->length = body->small_length = 0;
}

void body_plain(struct body *body, uint64_t bytes)
{
    body_none(body);
    add(body, body_pattern, PATTERN_SIZE, 0, bytes);
}

void body_chunked(struct body *body, uint64_t bytes)
{
    uint64_t rest = bytes % BODY_CHUNK, chunks = bytes / BODY_CHUNK;
    char head[16];

    body_none(body);
    add(body, chunk_pattern, sizeof chunk_pattern, 0, chunks * CHUNK_WHOLE);
    if (rest > 0) {
        append(body, head, (size_t)snprintf(head, sizeof head, "%" PRIx64 "\r\n", rest));
        add_small(body, 0);
        add(body, body_pattern, PATTERN_SIZE, (bytes - rest) % PATTERN_SIZE, rest);
    }
    size_t from = body->small_length;
    append(body, "\r\n0\r\n\r\n" + (rest > 0 ? 0 : 2), rest > 0 ? 7 : 5);
    add_small(body, from);
}

/* An uncompressed block. */
static void append_stored(struct body *body, size_t length, bool last)
{
    append_number(body, last, 1);
    append_number(body, (uint32_t)length, 2);
    append_number(body, ~(uint32_t)length, 2);
    append(body, body_pattern, length);
}

static void append_end(struct body *body, uint64_t bytes)
{
    append_number(body, pattern_checksum(bytes), 4);
    append_number(body, (uint32_t)bytes, 4);
}

void body_gzip(struct body *body, uint64_t bytes)
{
    static const unsigned char head[10] = {0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3};
    bool small = bytes < STORED + LINE;

    body_none(body);
    append(body, head, sizeof head);
    append_stored(body, small ? (size_t)bytes : STORED, small);
    if (small) {
        append_end(body, bytes);
        add_small(body, 0);
        return;
    }

    uint64_t lines = (bytes - STORED) / LINE, rest = (bytes - STORED) % LINE;
    size_t first = 2 * UNIT;                                                             /* the third line's digits */
    append_number(body, ((unsigned char)gzip_pattern[first] & ~low_bits(PHASE)) | 3, 1); /* last block, fixed codes */
    add_small(body, 0);
    add(body, gzip_pattern, sizeof gzip_pattern, first + 1, lines * UNIT - 1);

    size_t from = body->small_length;
    struct bits bits = {.at = body->small + from, .held = low_bits(PHASE), .count = PHASE};
    for (uint64_t at = bytes - rest; at < bytes; at++)
        put_literal(&bits, (unsigned char)body_pattern[at % PATTERN_SIZE]);
    put_code(&bits, 0, 7); /* the block's end */
    put_bits(&bits, 0, 7); /* up to the next byte */
    body->small_length = (size_t)(bits.at - body->small);
    append_end(body, bytes);
    add_small(body, from);
}
