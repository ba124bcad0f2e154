#include "wire/postgresql/values.h"

bool pg_read_bits(struct pg_span value, struct pg_bits *bits)
{
    if (value.length < 4) return false;
    bits->count = pg_load_32(value.at);
    bits->at = value.at + 4;
    size_t bytes = value.length - 4;
    if (bits->count > INT32_MAX || ((size_t)bits->count + 7) / 8 != bytes) return false;
    uint32_t rest = bits->count % 8; // zeros follow these bits
    return rest == 0 || (uint8_t)(bits->at[bytes - 1] << rest) == 0;
}

enum pg_written pg_put_bits(struct pg_buffer *buffer, struct pg_span digits)
{
    if (digits.length > PG_MESSAGE_MOST) return PG_TOO_LONG;
    size_t bytes = (digits.length + 7) / 8;
    for (size_t i = 0; i < digits.length; i++)
        if (digits.at[i] != '0' && digits.at[i] != '1') return PG_MALFORMED;
    if (!pg_reserve(buffer, 4 + bytes)) return PG_NO_ROOM;
    pg_put_32(buffer, (uint32_t)digits.length);
    uint8_t *at = buffer->at + buffer->length;
    memset(at, 0, bytes);
    for (size_t i = 0; i < digits.length; i++)
        at[i / 8] |= (uint8_t)((digits.at[i] - '0') << (7 - i % 8));
    buffer->length += bytes;
    return PG_WRITTEN;
}
