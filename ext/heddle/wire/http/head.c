#include "wire/http/head.h"

#include <string.h>

// Ruby's \s in a regular expression.
static bool is_space(uint8_t byte)
{
    return byte == ' ' || (byte >= '\t' && byte <= '\r');
}

// String#strip removes NUL, too.
static bool is_stripped(uint8_t byte)
{
    return byte == 0 || is_space(byte);
}

static bool http_is_digit(uint8_t byte)
{
    return byte >= '0' && byte <= '9';
}

static const uint8_t *skip_digits(const uint8_t *p, const uint8_t *end)
{
    while (p < end && http_is_digit(*p))
        p++;
    return p;
}

static const uint8_t *skip_space(const uint8_t *p, const uint8_t *end)
{
    while (p < end && is_space(*p))
        p++;
    return p;
}

bool wire_http_status_line(const uint8_t *p, const uint8_t *end, struct wire_http_status *status)
{
    static const char protocol[4] = {'H', 'T', 'T', 'P'};
    *status = (struct wire_http_status){0};
    if (end - p < 4) return false;
    for (int i = 0; i < 4; i++) {
        if ((p[i] & 0xdf) != protocol[i]) return false;
    }
    p += 4;
    if (p < end && *p == '/') {
        const uint8_t *major = p + 1;
        const uint8_t *dot = skip_digits(major, end);
        if (dot == major || dot == end || *dot != '.') return false;
        const uint8_t *after = skip_digits(dot + 1, end);
        if (after == dot + 1) return false;
        status->version = (struct wire_http_span){major, (size_t)(after - major)};
        p = after;
    }
    const uint8_t *code = skip_space(p, end);
    if (code == p || end - code < 3 || !http_is_digit(code[0]) || !http_is_digit(code[1]) || !http_is_digit(code[2]))
        return false;
    status->code = (struct wire_http_span){code, 3};
    p = code + 3;
    if (p == end) return true;
    const uint8_t *message = skip_space(p, end);
    if (message == p) return false;
    // In Ruby's regular expressions a dot matches every byte except "\n".
    if (memchr(message, '\n', (size_t)(end - message))) return false;
    status->message = (struct wire_http_span){message, (size_t)(end - message)};
    return true;
}

enum { LONGEST_NAME = 1024, LONGEST_VALUE = 65536 }; // Net::HTTPHeader's limits, in versions that have them

static bool plain_name(struct wire_http_span name)
{
    if (name.length == 0 || name.length > LONGEST_NAME) return false;
    for (size_t i = 0; i < name.length; i++) {
        if (name.at[i] < ' ' || name.at[i] == 0x7f) return false;
    }
    return true;
}

static bool plain_value(struct wire_http_span value)
{
    return value.length <= LONGEST_VALUE && !memchr(value.at, '\r', value.length) &&
           !memchr(value.at, '\n', value.length);
}

enum wire_http_line wire_http_header_line(const uint8_t *p, const uint8_t *end, bool blank_ends, bool follows,
                                          struct wire_http_field *field)
{
    *field = (struct wire_http_field){0};
    if (blank_ends) {
        while (end > p && is_space(end[-1]))
            end--;
    } else if (end > p && end[-1] == '\n') {
        end--;
        if (end > p && end[-1] == '\r') end--;
    } else if (end > p && end[-1] == '\r') {
        end--; // String#chomp
    }
    if (p == end) return HTTP_LINE_END;
    bool folded = follows && (*p == ' ' || *p == '\t');
    while (p < end && is_stripped(*p))
        p++;
    while (end > p && is_stripped(end[-1]))
        end--;
    if (folded) {
        field->value = (struct wire_http_span){p, (size_t)(end - p)};
        field->plain = plain_value(field->value);
        return HTTP_LINE_CONTINUATION;
    }
    const uint8_t *colon = p < end ? memchr(p, ':', (size_t)(end - p)) : NULL;
    if (!colon) return HTTP_LINE_INVALID;
    const uint8_t *name_end = colon;
    while (name_end > p && is_space(name_end[-1]))
        name_end--;
    const uint8_t *value = skip_space(colon + 1, end);
    field->name = (struct wire_http_span){p, (size_t)(name_end - p)};
    field->value = (struct wire_http_span){value, (size_t)(end - value)};
    field->plain = plain_name(field->name) && plain_value(field->value);
    return HTTP_LINE_FIELD;
}

static int http_hexadecimal(uint8_t byte)
{
    if (http_is_digit(byte)) return byte - '0';
    byte |= 0x20;
    return byte >= 'a' && byte <= 'f' ? byte - 'a' + 10 : -1;
}

bool wire_http_chunk_size(const uint8_t *p, const uint8_t *end, uint64_t *size)
{
    while (p < end && http_hexadecimal(*p) < 0)
        p++;
    if (p == end) return false;
    uint64_t value = 0;
    for (int digit; p < end && (digit = http_hexadecimal(*p)) >= 0; p++) {
        value = value >> 60 ? UINT64_MAX : value << 4 | (uint64_t)digit;
        if (value == UINT64_MAX) break;
    }
    *size = value;
    return true;
}

size_t wire_http_chopped(const uint8_t *p, size_t length)
{
    if (length >= 2 && p[length - 1] == '\n' && p[length - 2] == '\r') return length - 2;
    return length ? length - 1 : 0;
}

size_t wire_http_capitalize(const uint8_t *name, size_t length, uint8_t *out)
{
    while (length && name[length - 1] == '-') // String#split drops empty parts at the end
        length--;
    bool first = true;
    for (size_t i = 0; i < length; i++) {
        uint8_t byte = name[i];
        if (first && byte >= 'a' && byte <= 'z') byte -= 0x20;
        if (!first && byte >= 'A' && byte <= 'Z') byte += 0x20;
        first = byte == '-';
        out[i] = byte;
    }
    return length;
}

bool wire_http_plain_number(const uint8_t *p, const uint8_t *end, uint64_t *number)
{
    if (p == end || end - p > 18) return false;
    uint64_t value = 0;
    for (; p < end; p++) {
        if (!http_is_digit(*p)) return false;
        value = value * 10 + (uint64_t)(*p - '0');
    }
    *number = value;
    return true;
}

bool wire_http_any_high(const uint8_t *p, size_t length)
{
    const uint64_t high = UINT64_C(0x8080808080808080);
    size_t i = 0;
    for (; i + 64 <= length; i += 64) {
        uint64_t words[8];
        memcpy(words, p + i, sizeof words);
        if ((words[0] | words[1] | words[2] | words[3] | words[4] | words[5] | words[6] | words[7]) & high) return true;
    }
    for (; i < length; i++) {
        if (p[i] & 0x80) return true;
    }
    return false;
}
