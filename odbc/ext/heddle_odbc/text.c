#include "text.h"

#include <string.h>

bool odbc_append_wide(struct odbc_buffer *buffer, const char *from, size_t length)
{
    if (length > SIZE_MAX / 4 || !odbc_buffer_reserve(buffer, 2 * length)) return false; // never more units than bytes
    const unsigned char *p = (const unsigned char *)from, *end = p + length;
    uint16_t *to = (uint16_t *)(buffer->at + buffer->length), *start = to;
    while (p < end) {
        uint32_t c = *p++;
        // Callers pass valid UTF-8; the checks of `end` only keep a mistake there from reading further.
        if (c >= 0xf0 && end - p >= 3) {
            c = (c & 0x07) << 18 | (p[0] & 0x3fu) << 12 | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu);
            p += 3;
            c -= 0x10000;
            *to++ = (uint16_t)(0xd800 | c >> 10);
            *to++ = (uint16_t)(0xdc00 | (c & 0x3ff));
            continue;
        }
        if (c >= 0xe0 && end - p >= 2) {
            c = (c & 0x0f) << 12 | (p[0] & 0x3fu) << 6 | (p[1] & 0x3fu);
            p += 2;
        } else if (c >= 0xc0 && end - p >= 1) {
            c = (c & 0x1f) << 6 | (p[0] & 0x3fu);
            p += 1;
        }
        *to++ = (uint16_t)c;
    }
    buffer->length += (size_t)(to - start) * 2;
    return true;
}

size_t odbc_narrow(char *to, const uint16_t *from, size_t units)
{
    char *start = to;
    for (size_t i = 0; i < units; i++) {
        uint32_t c = from[i];
        if (c < 0x80) {
            *to++ = (char)c;
            continue;
        }
        if (c < 0x800) {
            *to++ = (char)(0xc0 | c >> 6);
            *to++ = (char)(0x80 | (c & 0x3f));
            continue;
        }
        if ((c & 0xfc00) == 0xd800 && i + 1 < units && (from[i + 1] & 0xfc00) == 0xdc00) {
            c = 0x10000 + ((c & 0x3ff) << 10 | (from[++i] & 0x3ffu));
            *to++ = (char)(0xf0 | c >> 18);
            *to++ = (char)(0x80 | (c >> 12 & 0x3f));
        } else {
            if ((c & 0xf800) == 0xd800) c = 0xfffd;
            *to++ = (char)(0xe0 | c >> 12);
        }
        *to++ = (char)(0x80 | (c >> 6 & 0x3f));
        *to++ = (char)(0x80 | (c & 0x3f));
    }
    return (size_t)(to - start);
}

bool odbc_append_narrow(struct odbc_buffer *buffer, const uint16_t *from, size_t units)
{
    if (units > SIZE_MAX / 8 || !odbc_buffer_reserve(buffer, 3 * units)) return false;
    buffer->length += odbc_narrow(buffer->at + buffer->length, from, units);
    return true;
}
