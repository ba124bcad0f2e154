// Builds the messages of wire/postgresql/requests.c from pieces of the input, alone, under sanitizers; see fuzz.h.
// Whatever is written has to be whole messages; whatever is refused leaves nothing behind.
#include "wire/postgresql/requests.h"

#include "fuzz.h"

static bool grow(struct pg_buffer *buffer, size_t room)
{
    if (buffer->length + room > 64 << 10) return false;
    size_t capacity = buffer->length + room; // exactly, for the sanitizer to see a byte too many
    buffer->at = realloc(buffer->at, capacity);
    buffer->capacity = capacity;
    return true;
}

static const uint8_t *next;

static uint8_t byte(const uint8_t *end)
{
    return next < end ? *next++ : 0;
}

static struct pg_span piece(const uint8_t *end)
{
    size_t length = byte(end);
    if (length > (size_t)(end - next)) length = (size_t)(end - next);
    struct pg_span span = {next, length};
    next += length;
    return span;
}

static enum pg_written put_bind(struct pg_buffer *buffer, const uint8_t *end)
{
    struct pg_bind bind;
    uint8_t formats[256] = {0};
    struct pg_span portal = piece(end), statement = piece(end);
    uint8_t parameters = byte(end), format_count = byte(end) % 4, values = parameters + byte(end) % 2;
    enum pg_written result = pg_bind_begin(&bind, buffer, portal, statement, formats,
                                           format_count == 3 ? parameters : format_count, parameters);
    check(result == bind.result, "the result of pg_bind_begin");
    for (unsigned i = 0; i < values; i++) {
        bool null = byte(end) % 2 == 0;
        pg_bind_value(&bind, null ? (struct pg_span){NULL, 0} : piece(end));
    }
    return pg_bind_end(&bind, formats, byte(end));
}

static enum pg_written put(struct pg_buffer *buffer, const uint8_t *end, uint8_t what)
{
    switch (what) {
    case 0:
        return pg_put_query(buffer, piece(end));
    case 1: {
        static const uint32_t types[256];
        struct pg_span name = piece(end), sql = piece(end);
        return pg_put_parse(buffer, name, sql, types, byte(end));
    }
    case 2:
        return put_bind(buffer, end);
    case 3:
        return pg_put_describe(buffer, PG_STATEMENT, piece(end));
    case 4: {
        uint32_t rows = (uint32_t)byte(end) << 24;
        return pg_put_execute(buffer, piece(end), rows);
    }
    case 5:
        return pg_put_close(buffer, PG_PORTAL, piece(end));
    case 6:
        return pg_put_sync(buffer);
    case 7: {
        size_t message;
        enum pg_written result = pg_copy_data_begin(buffer, &message);
        if (result) return result;
        struct pg_span bytes = piece(end);
        pg_put_bytes(buffer, bytes.at, bytes.length);
        return pg_copy_data_end(buffer, message);
    }
    case 8:
        return pg_put_copy_done(buffer);
    default:
        return pg_put_copy_fail(buffer, piece(end));
    }
}

static void try_input(const uint8_t *p, const uint8_t *end)
{
    struct pg_buffer buffer = {.grow = grow};
    next = p;
    while (next < end) {
        uint8_t what = byte(end) % 10;
        size_t before = buffer.length;
        enum pg_written result = put(&buffer, end, what);
        if (result) {
            check(buffer.length == before, "a refused message is left in the buffer");
        } else {
            check(buffer.length >= before + 5, "a message without a header");
            check(pg_load_32(buffer.at + before + 1) == buffer.length - before - 1, "the length of a message");
        }
    }
    free(buffer.at);
}

int main(int argc, char **argv)
{
    static const char tells[] = "\0\1\2\3\4\5\6\7\10\11\377a";
    return fuzz(argc, argv, tells, sizeof tells - 1, 8);
}
