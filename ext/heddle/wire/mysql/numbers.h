// Numbers and strings in the protocol of MySQL and MariaDB. Functions that read move *p behind the bytes that they have
// taken, and return false if there are too few.
#ifndef HEDDLE_WIRE_MYSQL_NUMBERS_H
#define HEDDLE_WIRE_MYSQL_NUMBERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct mysql_span {
    const uint8_t *at;
    size_t length;
};

// A little-endian number of at most eight bytes: a single load if the compiler knows `bytes`.
static inline uint64_t mysql_little(const uint8_t *p, size_t bytes)
{
    uint64_t number = 0;
    memcpy(&number, p, bytes);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    number = __builtin_bswap64(number);
#endif
    return number;
}

// Writes such a number.
static inline void mysql_put_little(uint8_t *p, uint64_t number, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        p[i] = (uint8_t)(number >> (8 * i));
}

static inline bool mysql_take(const uint8_t **p, const uint8_t *end, size_t bytes, uint64_t *number)
{
    if ((size_t)(end - *p) < bytes) return false;
    *number = mysql_little(*p, bytes);
    *p += bytes;
    return true;
}

static inline bool mysql_take_16(const uint8_t **p, const uint8_t *end, uint16_t *number)
{
    uint64_t taken;
    if (!mysql_take(p, end, 2, &taken)) return false;
    *number = (uint16_t)taken;
    return true;
}

// A length-encoded number, of one to nine bytes.
static inline bool mysql_number(const uint8_t **p, const uint8_t *end, uint64_t *number)
{
    if (*p >= end) return false;
    uint8_t first = *(*p)++;
    if (first < 0xfb) {
        *number = first;
        return true;
    }
    if (first == 0xfb || first == 0xff) return false; // NULL or an error
    return mysql_take(p, end, first == 0xfc ? 2 : first == 0xfd ? 3 : 8, number);
}

// A string after its length-encoded length.
static inline bool mysql_string(const uint8_t **p, const uint8_t *end, struct mysql_span *span)
{
    uint64_t length;
    if (!mysql_number(p, end, &length) || length > (uint64_t)(end - *p)) return false;
    *span = (struct mysql_span){*p, (size_t)length};
    *p += length;
    return true;
}

#endif
