#include "wire/postgresql/copy.h"

static bool pg_same(struct pg_span one, struct pg_span other)
{
    return one.length == other.length && (one.length == 0 || memcmp(one.at, other.at, one.length) == 0);
}

static bool is_end_of_data(struct pg_span line)
{
    return line.length == 2 && line.at[0] == '\\' && line.at[1] == '.';
}

// The line up to `newline`, or to the end of the data. With `carriage`, a preceding carriage return belongs to the
// line's end.
static enum pg_parsed take_line(const uint8_t *p, const uint8_t *newline, const uint8_t *end, bool carriage,
                                struct pg_span *line, const uint8_t **next, bool *end_of_data)
{
    *next = newline < end ? newline + 1 : end;
    if (carriage && newline < end) newline--;
    *line = (struct pg_span){p, (size_t)(newline - p)};
    *end_of_data = is_end_of_data(*line);
    return PG_DONE;
}

// ---- text

const struct pg_copy_text pg_copy_text_default = {'\t', {(const uint8_t *)"\\N", 2}};

enum pg_parsed pg_copy_text_line(const uint8_t *p, const uint8_t *end, bool last, struct pg_copy_scan *scan,
                                 struct pg_span *line, const uint8_t **next, bool *end_of_data)
{
    const uint8_t *at = p + scan->seen;
    bool carriage = scan->carriage;
    while (at < end && *at != '\n') {
        bool escape = *at == '\\'; // an escaped newline is part of the value
        if (escape && end - at == 1 && !last) break;
        carriage = *at == '\r';
        at += escape && end - at > 1 ? 2 : 1;
    }
    if ((at == end || *at != '\n') && (!last || p == end)) {
        *scan = (struct pg_copy_scan){.seen = (size_t)(at - p), .carriage = carriage};
        return PG_MORE;
    }
    *scan = (struct pg_copy_scan){0};
    return take_line(p, at, end, carriage, line, next, end_of_data);
}

bool pg_copy_text_next(const struct pg_copy_text *form, struct pg_copy_fields *fields, struct pg_copy_field *field)
{
    if (fields->ended) return false;
    const uint8_t *p = fields->p;
    field->encoded = false;
    while (p < fields->end && *p != form->delimiter) {
        bool escape = *p == '\\';
        field->encoded = field->encoded || escape;
        p += escape && fields->end - p > 1 ? 2 : 1;
    }
    field->raw = (struct pg_span){fields->p, (size_t)(p - fields->p)};
    if (pg_same(field->raw, form->null)) *field = (struct pg_copy_field){{NULL, 0}, false};
    fields->ended = p == fields->end;
    fields->p = fields->ended ? p : p + 1;
    return true;
}

static int pg_hexadecimal(uint8_t byte)
{
    if (byte >= '0' && byte <= '9') return byte - '0';
    byte |= 0x20;
    return byte >= 'a' && byte <= 'f' ? byte - 'a' + 10 : -1;
}

// The byte that an escape after a backslash stands for; *p moves behind it.
static uint8_t unescape(const uint8_t **p, const uint8_t *end)
{
    uint8_t byte = *(*p)++;
    unsigned code = 0;
    int digit;
    switch (byte) {
    case 'b': return '\b';
    case 'f': return '\f';
    case 'n': return '\n';
    case 'r': return '\r';
    case 't': return '\t';
    case 'v': return '\v';
    case 'x':
        if (*p == end || pg_hexadecimal(**p) < 0) return byte;
        for (int i = 0; i < 2 && *p < end && (digit = pg_hexadecimal(**p)) >= 0; i++, (*p)++)
            code = code * 16 + (unsigned)digit;
        return (uint8_t)code;
    default:
        if (byte < '0' || byte > '7') return byte;
        code = (unsigned)(byte - '0');
        for (int i = 0; i < 2 && *p < end && **p >= '0' && **p <= '7'; i++)
            code = code * 8 + (unsigned)(*(*p)++ - '0');
        return (uint8_t)code;
    }
}

size_t pg_copy_text_decode(struct pg_span raw, uint8_t *out)
{
    const uint8_t *p = raw.at, *end = raw.at + raw.length;
    uint8_t *at = out;
    while (p < end) {
        uint8_t byte = *p++;
        *at++ = byte == '\\' && p < end ? unescape(&p, end) : byte;
    }
    return (size_t)(at - out);
}

// The letters that follow the backslash.
static const uint8_t escapes[UINT8_MAX + 1] = {
    ['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\v'] = 'v', ['\f'] = 'f', ['\r'] = 'r', ['\\'] = '\\',
};

// The letter for a byte; 0 for a byte that needs no escape.
static inline uint8_t escape_of(uint8_t byte, uint8_t delimiter)
{
    return byte == delimiter && !escapes[byte] ? byte : escapes[byte];
}

static bool needs_escapes(struct pg_span value, uint8_t delimiter)
{
    for (size_t i = 0; i < value.length; i++)
        if (escapes[value.at[i]] || value.at[i] == delimiter) return true;
    return false;
}

enum pg_written pg_put_copy_text(struct pg_buffer *buffer, const struct pg_copy_text *form, struct pg_span value)
{
    enum { OCTAL = 3 }; // bytes that an escape adds
    if (!value.at) return pg_put_bytes(buffer, form->null.at, form->null.length);
    if (value.length > PG_MESSAGE_MOST) return PG_TOO_LONG;
    if (!needs_escapes(value, form->delimiter) && !pg_same(value, form->null))
        return pg_put_bytes(buffer, value.at, value.length);
    size_t room = value.length + OCTAL, before = buffer->length;
    for (size_t i = 0; i < value.length; i++)
        room += escape_of(value.at[i], form->delimiter) != 0;
    if (!pg_reserve(buffer, room)) return PG_NO_ROOM;
    uint8_t *begin = buffer->at + before, *at = begin;
    for (size_t i = 0; i < value.length; i++) {
        uint8_t byte = value.at[i], escape = escape_of(byte, form->delimiter);
        if (escape) {
            *at++ = '\\';
            byte = escape;
        }
        *at++ = byte;
    }
    if (pg_same((struct pg_span){begin, (size_t)(at - begin)}, form->null)) {
        // Writes the first byte as a number, so that the value is not NULL. An empty value has no first byte.
        if (value.length == 0) return PG_OUT_OF_RANGE;
        size_t first = escape_of(value.at[0], form->delimiter) ? 2 : 1;
        memmove(begin + 1 + OCTAL, begin + first, (size_t)(at - begin) - first);
        at += 1 + OCTAL - first;
        begin[0] = '\\';
        begin[1] = (uint8_t)('0' + (value.at[0] >> 6));
        begin[2] = (uint8_t)('0' + (value.at[0] >> 3 & 7));
        begin[3] = (uint8_t)('0' + (value.at[0] & 7));
    }
    buffer->length = before + (size_t)(at - begin);
    return PG_WRITTEN;
}

// ---- csv

const struct pg_copy_csv pg_copy_csv_default = {',', '"', '"', {(const uint8_t *)"", 0}};

// Skips the byte at `p`; inside quotes an escape also takes the next byte, if that is a quote or an escape.
static const uint8_t *csv_step(const struct pg_copy_csv *form, const uint8_t *p, const uint8_t *end, bool *quoted)
{
    if (*quoted && *p == form->escape && end - p > 1 && (p[1] == form->quote || p[1] == form->escape)) return p + 2;
    if (*p == form->quote) *quoted = !*quoted;
    return p + 1;
}

enum pg_parsed pg_copy_csv_record(const struct pg_copy_csv *form, const uint8_t *p, const uint8_t *end, bool last,
                                  struct pg_copy_scan *scan, struct pg_span *record, const uint8_t **next,
                                  bool *end_of_data)
{
    const uint8_t *at = p + scan->seen;
    bool quoted = scan->quoted, undecided = false;
    while (at < end && (quoted || *at != '\n')) {
        undecided = quoted && *at == form->escape && end - at == 1 && !last; // the next byte says what this one means
        if (undecided) break;
        at = csv_step(form, at, end, &quoted);
    }
    if (undecided || (at == end && (!last || p == end))) {
        *scan = (struct pg_copy_scan){.seen = (size_t)(at - p), .quoted = quoted};
        return PG_MORE;
    }
    *scan = (struct pg_copy_scan){0};
    if (quoted) return PG_INVALID;
    return take_line(p, at, end, at > p && at[-1] == '\r', record, next, end_of_data);
}

bool pg_copy_csv_next(const struct pg_copy_csv *form, struct pg_copy_fields *fields, struct pg_copy_field *field)
{
    if (fields->ended) return false;
    const uint8_t *p = fields->p;
    bool quoted = false;
    field->encoded = false;
    while (p < fields->end && (quoted || *p != form->delimiter)) {
        field->encoded = field->encoded || *p == form->quote;
        p = csv_step(form, p, fields->end, &quoted);
    }
    field->raw = (struct pg_span){fields->p, (size_t)(p - fields->p)};
    if (!field->encoded && pg_same(field->raw, form->null)) field->raw = (struct pg_span){NULL, 0};
    fields->ended = p == fields->end;
    fields->p = fields->ended ? p : p + 1;
    return true;
}

size_t pg_copy_csv_decode(const struct pg_copy_csv *form, struct pg_span raw, uint8_t *out)
{
    const uint8_t *p = raw.at, *end = raw.at + raw.length;
    uint8_t *at = out;
    bool quoted = false;
    while (p < end) {
        bool before = quoted;
        const uint8_t *behind = csv_step(form, p, end, &quoted);
        if (behind - p == 2) {
            *at++ = p[1];
        } else if (before == quoted) {
            *at++ = *p;
        }
        p = behind;
    }
    return (size_t)(at - out);
}

static bool needs_quotes(const struct pg_copy_csv *form, struct pg_span value, bool only)
{
    if (pg_same(value, form->null) || (only && is_end_of_data(value))) return true;
    for (size_t i = 0; i < value.length; i++) {
        uint8_t byte = value.at[i];
        if (byte == form->delimiter || byte == form->quote || byte == '\n' || byte == '\r') return true;
    }
    return false;
}

enum pg_written pg_put_copy_csv(struct pg_buffer *buffer, const struct pg_copy_csv *form, struct pg_span value,
                                bool only)
{
    if (!value.at) return pg_put_bytes(buffer, form->null.at, form->null.length);
    if (value.length > PG_MESSAGE_MOST) return PG_TOO_LONG;
    if (!needs_quotes(form, value, only)) return pg_put_bytes(buffer, value.at, value.length);
    size_t room = value.length + 2;
    for (size_t i = 0; i < value.length; i++)
        room += value.at[i] == form->quote || value.at[i] == form->escape;
    if (!pg_reserve(buffer, room)) return PG_NO_ROOM;
    uint8_t *at = buffer->at + buffer->length;
    *at++ = form->quote;
    for (size_t i = 0; i < value.length; i++) {
        if (value.at[i] == form->quote || value.at[i] == form->escape) *at++ = form->escape;
        *at++ = value.at[i];
    }
    *at++ = form->quote;
    buffer->length = (size_t)(at - buffer->at);
    return PG_WRITTEN;
}

// ---- binary

enum { SIGNATURE = 11, CRITICAL_FLAGS = 16 };
static const uint8_t signature[SIGNATURE] = {'P', 'G', 'C', 'O', 'P', 'Y', '\n', 0xff, '\r', '\n', 0};

enum pg_parsed pg_copy_binary_header(const uint8_t *p, const uint8_t *end, const uint8_t **next)
{
    size_t length = (size_t)(end - p), compared = length < SIGNATURE ? length : SIGNATURE;
    if (compared > 0 && memcmp(p, signature, compared) != 0) return PG_INVALID;
    if (length < SIGNATURE + 8) return PG_MORE;
    uint32_t flags = pg_load_32(p + SIGNATURE), extension = pg_load_32(p + SIGNATURE + 4);
    if (flags >> CRITICAL_FLAGS || extension > INT32_MAX) return PG_INVALID;
    if (length - SIGNATURE - 8 < extension) return PG_MORE;
    *next = p + SIGNATURE + 8 + extension;
    return PG_DONE;
}

enum pg_written pg_put_copy_binary_header(struct pg_buffer *buffer)
{
    if (!pg_reserve(buffer, SIGNATURE + 8)) return PG_NO_ROOM;
    pg_put_bytes(buffer, signature, SIGNATURE);
    return pg_put_64(buffer, 0);
}

enum pg_parsed pg_copy_binary_tuple(const uint8_t *p, const uint8_t *end, struct pg_copy_scan *scan,
                                    struct pg_span *tuple, const uint8_t **next)
{
    if (end - p < 2) return PG_MORE;
    if (!scan->seen) *scan = (struct pg_copy_scan){.seen = 2, .left = pg_load_16(p)};
    if (scan->left == PG_COPY_TRAILER) {
        *scan = (struct pg_copy_scan){0};
        *tuple = (struct pg_span){NULL, 0};
        *next = p + 2;
        return PG_DONE;
    }
    if (scan->left > INT16_MAX) return PG_INVALID;
    for (; scan->left > 0; scan->left--) {
        const uint8_t *at = p + scan->seen;
        if (end - at < 4) return PG_MORE;
        uint32_t length = pg_load_32(at);
        if (length == UINT32_MAX) length = 0; // NULL
        if (length > PG_MESSAGE_MOST) return PG_INVALID;
        if ((size_t)(end - at - 4) < length) return PG_MORE;
        scan->seen += 4 + length;
    }
    *tuple = (struct pg_span){p, scan->seen};
    *next = p + scan->seen;
    *scan = (struct pg_copy_scan){0};
    return PG_DONE;
}

enum pg_written pg_put_copy_binary_tuple(struct pg_buffer *buffer, size_t count)
{
    return count > INT16_MAX ? PG_TOO_MANY_PARAMETERS : pg_put_16(buffer, (uint16_t)count);
}
