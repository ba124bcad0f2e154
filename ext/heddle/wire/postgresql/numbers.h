// Numbers and strings in PostgreSQL's protocol: big-endian numbers, and strings that end with NUL (protocol
// documentation, "Message Data Types"). The pg_take functions move *p behind the bytes that they have read; if there
// are too few, they return false and move nothing.
#ifndef HEDDLE_WIRE_POSTGRESQL_NUMBERS_H
#define HEDDLE_WIRE_POSTGRESQL_NUMBERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

// Bytes that the caller owns. SQL's NULL has no `at`.
struct pg_span {
    const uint8_t *at;
    size_t length;
};

// A parser's result for the bytes that have arrived.
enum pg_parsed { PG_DONE, PG_MORE, PG_INVALID };

static inline uint16_t pg_load_16(const uint8_t *p)
{
    return (uint16_t)(p[0] << 8 | p[1]);
}

static inline uint32_t pg_load_32(const uint8_t *p)
{
    uint32_t number;
    memcpy(&number, p, 4);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    number = __builtin_bswap32(number);
#endif
    return number;
}

static inline uint64_t pg_load_64(const uint8_t *p)
{
    uint64_t number;
    memcpy(&number, p, 8);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    number = __builtin_bswap64(number);
#endif
    return number;
}

static inline void pg_store_16(uint8_t *p, uint16_t number)
{
    p[0] = (uint8_t)(number >> 8);
    p[1] = (uint8_t)number;
}

static inline void pg_store_32(uint8_t *p, uint32_t number)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    number = __builtin_bswap32(number);
#endif
    memcpy(p, &number, 4);
}

static inline void pg_store_64(uint8_t *p, uint64_t number)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    number = __builtin_bswap64(number);
#endif
    memcpy(p, &number, 8);
}

static inline bool pg_take_8(const uint8_t **p, const uint8_t *end, uint8_t *number)
{
    if (*p >= end) return false;
    *number = *(*p)++;
    return true;
}

static inline bool pg_take_16(const uint8_t **p, const uint8_t *end, uint16_t *number)
{
    if (end - *p < 2) return false;
    *number = pg_load_16(*p);
    *p += 2;
    return true;
}

static inline bool pg_take_32(const uint8_t **p, const uint8_t *end, uint32_t *number)
{
    if (end - *p < 4) return false;
    *number = pg_load_32(*p);
    *p += 4;
    return true;
}

static inline bool pg_take_bytes(const uint8_t **p, const uint8_t *end, size_t length, struct pg_span *bytes)
{
    if ((size_t)(end - *p) < length) return false;
    *bytes = (struct pg_span){*p, length};
    *p += length;
    return true;
}

// A string, without the NUL at its end.
static inline bool pg_take_string(const uint8_t **p, const uint8_t *end, struct pg_span *string)
{
    if (*p >= end) return false;
    const uint8_t *nul = memchr(*p, 0, (size_t)(end - *p));
    if (!nul) return false;
    *string = (struct pg_span){*p, (size_t)(nul - *p)};
    *p = nul + 1;
    return true;
}

// A value after its four-byte length; a length of -1 is NULL.
static inline bool pg_take_value(const uint8_t **p, const uint8_t *end, struct pg_span *value)
{
    if (end - *p < 4) return false;
    uint32_t length = pg_load_32(*p);
    if (length == UINT32_MAX) {
        *value = (struct pg_span){NULL, 0};
        *p += 4;
        return true;
    }
    if (length > INT32_MAX || length > (size_t)(end - *p - 4)) return false;
    *value = (struct pg_span){*p + 4, length};
    *p += 4 + length;
    return true;
}

#endif
