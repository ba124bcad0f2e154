#include "wire/postgresql/requests.h"

// ---- messages

// A message being written. Once a part is refused, later parts are not written, and message_end removes the message.
struct message {
    struct pg_buffer *buffer;
    size_t begin;  // of its length
    size_t before; // the buffer's length before the message
    enum pg_written result;
};

static struct message message_begin(struct pg_buffer *buffer, uint8_t type)
{
    struct message message = {.buffer = buffer, .before = buffer->length};
    message.result = pg_put_8(buffer, type);
    message.begin = buffer->length;
    if (!message.result) message.result = pg_put_32(buffer, 0);
    return message;
}

static enum pg_written message_end(struct message *message)
{
    struct pg_buffer *buffer = message->buffer;
    size_t length = buffer->length - message->begin;
    if (!message->result && length > PG_MESSAGE_MOST) message->result = PG_TOO_LONG;
    if (message->result) {
        buffer->length = message->before;
    } else {
        pg_store_32(buffer->at + message->begin, (uint32_t)length);
    }
    return message->result;
}

static void put_8(struct message *message, uint8_t number)
{
    if (!message->result) message->result = pg_put_8(message->buffer, number);
}

static void put_16(struct message *message, uint16_t number)
{
    if (!message->result) message->result = pg_put_16(message->buffer, number);
}

static void put_32(struct message *message, uint32_t number)
{
    if (!message->result) message->result = pg_put_32(message->buffer, number);
}

static void requests_put_string(struct message *message, struct pg_span string)
{
    if (!message->result) message->result = pg_put_string(message->buffer, string);
}

static enum pg_written put_empty(struct pg_buffer *buffer, uint8_t type)
{
    struct message message = message_begin(buffer, type);
    return message_end(&message);
}

static enum pg_written put_one_string(struct pg_buffer *buffer, uint8_t type, struct pg_span string)
{
    struct message message = message_begin(buffer, type);
    requests_put_string(&message, string);
    return message_end(&message);
}

static enum pg_written put_named(struct pg_buffer *buffer, uint8_t type, enum pg_named what, struct pg_span name)
{
    struct message message = message_begin(buffer, type);
    put_8(&message, (uint8_t)what);
    requests_put_string(&message, name);
    return message_end(&message);
}

// ---- queries

enum pg_written pg_put_query(struct pg_buffer *buffer, struct pg_span sql)
{
    return put_one_string(buffer, 'Q', sql);
}

enum pg_written pg_put_parse(struct pg_buffer *buffer, struct pg_span statement, struct pg_span sql,
                             const uint32_t *types, size_t type_count)
{
    if (type_count > PG_PARAMETERS_MOST) return PG_TOO_MANY_PARAMETERS;
    struct message message = message_begin(buffer, 'P');
    requests_put_string(&message, statement);
    requests_put_string(&message, sql);
    put_16(&message, (uint16_t)type_count);
    for (size_t i = 0; i < type_count; i++)
        put_32(&message, types[i]);
    return message_end(&message);
}

static void put_formats(struct message *message, const uint8_t *formats, size_t count)
{
    put_16(message, (uint16_t)count);
    for (size_t i = 0; i < count; i++)
        put_16(message, formats[i]);
}

static struct message message_of(const struct pg_bind *bind)
{
    return (struct message){bind->buffer, bind->message + 1, bind->message, bind->result};
}

// Removes the message.
static enum pg_written refuse_bind(struct pg_bind *bind, enum pg_written result)
{
    bind->result = result;
    bind->buffer->length = bind->message;
    return result;
}

enum pg_written pg_bind_begin(struct pg_bind *bind, struct pg_buffer *buffer, struct pg_span portal,
                              struct pg_span statement, const uint8_t *formats, size_t format_count,
                              size_t parameter_count)
{
    *bind = (struct pg_bind){.buffer = buffer, .message = buffer->length};
    if (parameter_count > PG_PARAMETERS_MOST) return refuse_bind(bind, PG_TOO_MANY_PARAMETERS);
    if (format_count > 1 && format_count != parameter_count) return refuse_bind(bind, PG_FORMATS_DIFFER);
    bind->count = (uint32_t)parameter_count;
    struct message message = message_begin(buffer, 'B');
    requests_put_string(&message, portal);
    requests_put_string(&message, statement);
    put_formats(&message, formats, format_count);
    put_16(&message, (uint16_t)parameter_count);
    return message.result ? refuse_bind(bind, message.result) : PG_WRITTEN;
}

// Counts one more parameter; false if it is one too many, or the message was refused before.
static bool count_parameter(struct pg_bind *bind)
{
    if (!bind->result && bind->written == bind->count) refuse_bind(bind, PG_COUNT_DIFFERS);
    if (bind->result) return false;
    bind->written++;
    return true;
}

enum pg_written pg_bind_value(struct pg_bind *bind, struct pg_span value)
{
    if (!count_parameter(bind)) return bind->result;
    enum pg_written result = pg_put_value(bind->buffer, value);
    return result ? refuse_bind(bind, result) : PG_WRITTEN;
}

enum pg_written pg_bind_end(struct pg_bind *bind, const uint8_t *result_formats, size_t format_count)
{
    if (bind->result) return bind->result;
    if (bind->written != bind->count) return refuse_bind(bind, PG_COUNT_DIFFERS);
    if (format_count > PG_PARAMETERS_MOST) return refuse_bind(bind, PG_FORMATS_DIFFER);
    struct message message = message_of(bind);
    put_formats(&message, result_formats, format_count);
    return bind->result = message_end(&message);
}

enum pg_written pg_put_describe(struct pg_buffer *buffer, enum pg_named what, struct pg_span name)
{
    return put_named(buffer, 'D', what, name);
}

enum pg_written pg_put_execute(struct pg_buffer *buffer, struct pg_span portal, uint32_t rows)
{
    if (rows > INT32_MAX) return PG_OUT_OF_RANGE;
    struct message message = message_begin(buffer, 'E');
    requests_put_string(&message, portal);
    put_32(&message, rows);
    return message_end(&message);
}

enum pg_written pg_put_close(struct pg_buffer *buffer, enum pg_named what, struct pg_span name)
{
    return put_named(buffer, 'C', what, name);
}

enum pg_written pg_put_sync(struct pg_buffer *buffer)
{
    return put_empty(buffer, 'S');
}

// ---- COPY

enum pg_written pg_copy_data_begin(struct pg_buffer *buffer, size_t *message)
{
    *message = buffer->length;
    struct message begun = message_begin(buffer, 'd');
    if (begun.result) buffer->length = *message;
    return begun.result;
}

enum pg_written pg_copy_data_end(struct pg_buffer *buffer, size_t message)
{
    struct message begun = {buffer, message + 1, message, PG_WRITTEN};
    return message_end(&begun);
}

enum pg_written pg_put_copy_done(struct pg_buffer *buffer)
{
    return put_empty(buffer, 'c');
}

enum pg_written pg_put_copy_fail(struct pg_buffer *buffer, struct pg_span reason)
{
    return put_one_string(buffer, 'f', reason);
}
