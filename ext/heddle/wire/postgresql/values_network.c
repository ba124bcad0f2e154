#include "wire/postgresql/values_network.h"

// ---- inet, cidr

// The server's own numbers, independent of its system's AF_INET6.
enum { FAMILY_4 = 2, FAMILY_6 = 3 };

static bool network_alone(const struct pg_inet *inet, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        unsigned network = inet->bits > 8 * i ? inet->bits - (unsigned)(8 * i) : 0;
        if (network < 8 && (uint8_t)(inet->address[i] << network) != 0) return false;
    }
    return true;
}

bool pg_read_inet(struct pg_span value, struct pg_inet *inet)
{
    if (value.length < 4) return false;
    const uint8_t *p = value.at;
    size_t bytes = p[0] == FAMILY_4 ? 4 : 16;
    if ((p[0] != FAMILY_4 && p[0] != FAMILY_6) || p[1] > 8 * bytes || p[2] > 1 || p[3] != bytes) return false;
    if (value.length != 4 + bytes) return false;
    *inet = (struct pg_inet){.version = bytes == 4 ? 4 : 6, .bits = p[1], .cidr = p[2]};
    memcpy(inet->address, p + 4, bytes);
    return !inet->cidr || network_alone(inet, bytes);
}

// ---- hexadecimals

static const char hexadecimals[] = "0123456789abcdef";

static int digit_of(uint8_t byte)
{
    if (byte >= '0' && byte <= '9') return byte - '0';
    byte |= 0x20;
    return byte >= 'a' && byte <= 'f' ? byte - 'a' + 10 : -1;
}

static bool take_byte(const uint8_t **p, const uint8_t *end, uint8_t *byte)
{
    if (end - *p < 2) return false;
    int high = digit_of((*p)[0]), low = digit_of((*p)[1]);
    if (high < 0 || low < 0) return false;
    *byte = (uint8_t)(high << 4 | low);
    *p += 2;
    return true;
}

// ---- macaddr, macaddr8

size_t pg_mac_text(struct pg_span value, char text[PG_MAC_TEXT_MOST])
{
    if (value.length != 6 && value.length != 8) return 0;
    size_t length = 0;
    for (size_t i = 0; i < value.length; i++) {
        if (i > 0) text[length++] = ':';
        text[length++] = hexadecimals[value.at[i] >> 4];
        text[length++] = hexadecimals[value.at[i] & 15];
    }
    return length;
}

enum pg_written pg_put_mac(struct pg_buffer *buffer, struct pg_span text)
{
    const uint8_t *p = text.at, *end = text.at + text.length;
    uint8_t bytes[8], separator = text.length > 2 && digit_of(text.at[2]) < 0 ? text.at[2] : 0;
    if (separator && separator != ':' && separator != '-') return PG_MALFORMED;
    size_t count = 0;
    while (p < end) {
        if (count == sizeof bytes || (count > 0 && separator && *p++ != separator)) return PG_MALFORMED;
        if (!take_byte(&p, end, &bytes[count++])) return PG_MALFORMED;
    }
    return count == 6 || count == 8 ? pg_put_bytes(buffer, bytes, count) : PG_MALFORMED;
}

// ---- uuid

bool pg_uuid_text(struct pg_span value, char text[PG_UUID_TEXT])
{
    if (value.length != PG_UUID) return false;
    for (size_t i = 0; i < PG_UUID; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10) *text++ = '-';
        *text++ = hexadecimals[value.at[i] >> 4];
        *text++ = hexadecimals[value.at[i] & 15];
    }
    return true;
}

enum pg_written pg_put_uuid(struct pg_buffer *buffer, struct pg_span text)
{
    const uint8_t *p = text.at, *end = text.at + text.length;
    if (end - p >= 2 && *p == '{' && end[-1] == '}') p++, end--;
    uint8_t bytes[PG_UUID];
    for (size_t i = 0; i < PG_UUID; i++) {
        // The server allows a hyphen after every two bytes.
        if (i > 0 && i % 2 == 0 && p < end && *p == '-') p++;
        if (!take_byte(&p, end, &bytes[i])) return PG_MALFORMED;
    }
    return p == end ? pg_put_bytes(buffer, bytes, PG_UUID) : PG_MALFORMED;
}
