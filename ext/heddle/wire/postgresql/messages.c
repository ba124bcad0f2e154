#include "wire/postgresql/messages.h"

// ---- messages

// The largest length that this client accepts for a type, including its own four bytes; 0 for a type that no server
// sends. DataRow, CopyData and FunctionCallResponse may have 1 GiB: a reader makes room only for what has arrived.
static uint32_t length_most(uint8_t type)
{
    switch (type) {
    case PG_DATA_ROW:
    case PG_COPY_DATA:
    case PG_FUNCTION_CALL_RESPONSE: return UINT32_C(0x3fffffff) + 4; // the server allocates no more
    case PG_ERROR_RESPONSE:
    case PG_NOTICE_RESPONSE: return 64 << 20; // a message may quote a whole statement, or a value
    case PG_ROW_DESCRIPTION: return 16 << 20; // 65,535 names of 63 bytes would fit into six
    case PG_PARAMETER_STATUS: return 1 << 20;
    case PG_PARAMETER_DESCRIPTION: return 4 + 2 + 4 * 65535;
    case PG_COPY_IN_RESPONSE:
    case PG_COPY_OUT_RESPONSE:
    case PG_COPY_BOTH_RESPONSE: return 4 + 1 + 2 + 2 * 65535;
    case PG_AUTHENTICATION:
    case PG_NEGOTIATE_PROTOCOL_VERSION:
    case PG_NOTIFICATION_RESPONSE: return 64 << 10;
    case PG_COMMAND_COMPLETE: return 4 << 10;
    case PG_BACKEND_KEY_DATA: return 4 + 4 + PG_KEY_MOST;
    case PG_READY_FOR_QUERY: return 5;
    case PG_NO_DATA:
    case PG_EMPTY_QUERY_RESPONSE:
    case PG_PORTAL_SUSPENDED:
    case PG_PARSE_COMPLETE:
    case PG_BIND_COMPLETE:
    case PG_CLOSE_COMPLETE:
    case PG_COPY_DONE: return 4;
    default: return 0;
    }
}

enum pg_parsed pg_message_header(const uint8_t *p, const uint8_t *end, struct pg_message *message)
{
    *message = (struct pg_message){0};
    if (p >= end) return PG_MORE;
    uint32_t most = length_most(*p);
    if (most == 0) return PG_INVALID;
    message->type = *p;
    if (end - p < PG_HEADER) return PG_MORE;
    uint32_t length = pg_load_32(p + 1);
    if (length < 4 || length > most) return PG_INVALID;
    message->whole = (size_t)length + 1;
    return PG_DONE;
}

enum pg_parsed pg_message(const uint8_t *p, const uint8_t *end, struct pg_message *message)
{
    enum pg_parsed parsed = pg_message_header(p, end, message);
    if (parsed != PG_DONE) return parsed;
    if ((size_t)(end - p) < message->whole) return PG_MORE;
    message->p = p + PG_HEADER;
    message->end = p + message->whole;
    return PG_DONE;
}

// ---- the state of the session

bool pg_parameter_status(const uint8_t *p, const uint8_t *end, struct pg_span *name, struct pg_span *value)
{
    return pg_take_string(&p, end, name) && pg_take_string(&p, end, value) && p == end;
}

bool pg_ready_for_query(const uint8_t *p, const uint8_t *end, enum pg_transaction *transaction)
{
    if (end - p != 1 || (*p != PG_IDLE && *p != PG_IN_TRANSACTION && *p != PG_FAILED)) return false;
    *transaction = (enum pg_transaction) * p;
    return true;
}

// ---- results

bool pg_columns_begin(const uint8_t *p, const uint8_t *end, struct pg_columns *columns)
{
    // The least that a column takes: its name's NUL and 18 bytes.
    enum { LEAST = 19 };
    *columns = (struct pg_columns){.end = end};
    if (!pg_take_16(&p, end, &columns->count)) return false;
    columns->p = p;
    return columns->count <= (size_t)(end - p) / LEAST;
}

bool pg_columns_next(struct pg_columns *columns, struct pg_column *column)
{
    const uint8_t *p = columns->p, *end = columns->end;
    uint16_t attribute, type_size, format;
    uint32_t modifier;
    if (columns->index == columns->count) return false;
    if (!pg_take_string(&p, end, &column->name) || !pg_take_32(&p, end, &column->table) ||
        !pg_take_16(&p, end, &attribute) || !pg_take_32(&p, end, &column->type) || !pg_take_16(&p, end, &type_size) ||
        !pg_take_32(&p, end, &modifier) || !pg_take_16(&p, end, &format) || format > PG_BINARY)
        return false;
    column->attribute = (int16_t)attribute;
    column->type_size = (int16_t)type_size;
    column->modifier = (int32_t)modifier;
    column->format = (enum pg_format)format;
    columns->p = p;
    columns->index++;
    return true;
}

bool pg_parameters(const uint8_t *p, const uint8_t *end, struct pg_parameters *parameters)
{
    *parameters = (struct pg_parameters){0};
    if (!pg_take_16(&p, end, &parameters->count)) return false;
    parameters->p = p;
    return (size_t)(end - p) == 4 * (size_t)parameters->count;
}

bool pg_row_begin(const uint8_t *p, const uint8_t *end, struct pg_row *row)
{
    *row = (struct pg_row){.end = end};
    if (!pg_take_16(&p, end, &row->count)) return false;
    row->p = p;
    return row->count <= (size_t)(end - p) / 4;
}

static bool messages_same(struct pg_span span, const char *text)
{
    return span.length == strlen(text) && memcmp(span.at, text, span.length) == 0;
}

static enum pg_verb verb_of(struct pg_span name)
{
    static const struct {
        const char *name;
        enum pg_verb verb;
    } verbs[] = {
        {"SELECT", PG_VERB_SELECT}, {"FETCH", PG_VERB_FETCH}, {"MOVE", PG_VERB_MOVE}, {"ROLLBACK", PG_VERB_ROLLBACK}};
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        if (messages_same(name, verbs[i].name)) return verbs[i].verb;
    return PG_VERB_OTHER;
}

// Removes the digits at the end of `text`, and the space before them. False if there are no digits, or their number is
// too large.
static bool take_count(struct pg_span *text, uint64_t *count)
{
    size_t from = text->length;
    while (from > 0 && text->at[from - 1] >= '0' && text->at[from - 1] <= '9')
        from--;
    if (from == text->length || from == 0 || text->at[from - 1] != ' ') return false;
    uint64_t number = 0;
    for (size_t i = from; i < text->length; i++) {
        uint64_t digit = (uint64_t)(text->at[i] - '0');
        if (number > (UINT64_MAX - digit) / 10) return false;
        number = number * 10 + digit;
    }
    *count = number;
    text->length = from - 1;
    return true;
}

bool pg_command(const uint8_t *p, const uint8_t *end, struct pg_command *command)
{
    *command = (struct pg_command){0};
    if (!pg_take_string(&p, end, &command->tag) || p != end) return false;
    command->name = command->tag;
    command->counted = take_count(&command->name, &command->rows);
    uint64_t oid;
    if (command->counted && command->name.length >= 6 && memcmp(command->name.at, "INSERT", 6) == 0)
        take_count(&command->name, &oid); // of the row, where tables had such: "INSERT 0 3"
    command->verb = verb_of(command->name);
    return true;
}

// ---- errors, notices, notifications

bool pg_errors_next(struct pg_errors *errors, uint8_t *field, struct pg_span *value)
{
    const uint8_t *p = errors->p;
    if (!pg_take_8(&p, errors->end, field) || *field == 0 || !pg_take_string(&p, errors->end, value)) return false;
    errors->p = p;
    return true;
}

void pg_error_fields(const uint8_t *p, const uint8_t *end, struct pg_error_fields *fields)
{
    struct pg_errors errors;
    struct pg_span value;
    uint8_t field;
    *fields = (struct pg_error_fields){0};
    pg_errors_begin(p, end, &errors);
    while (pg_errors_next(&errors, &field, &value))
        if (!fields->of[field].at) fields->of[field] = value;
}

bool pg_error_field(const uint8_t *p, const uint8_t *end, uint8_t field, struct pg_span *value)
{
    struct pg_errors errors;
    pg_errors_begin(p, end, &errors);
    uint8_t found;
    while (pg_errors_next(&errors, &found, value))
        if (found == field) return true;
    return false;
}

bool pg_notification(const uint8_t *p, const uint8_t *end, struct pg_notification *notification)
{
    return pg_take_32(&p, end, &notification->process) && pg_take_string(&p, end, &notification->channel) &&
           pg_take_string(&p, end, &notification->payload) && p == end;
}

// ---- COPY

bool pg_copy_response(const uint8_t *p, const uint8_t *end, struct pg_copy *copy)
{
    uint8_t format;
    if (!pg_take_8(&p, end, &format) || format > PG_BINARY || !pg_take_16(&p, end, &copy->columns)) return false;
    if ((size_t)(end - p) != 2 * (size_t)copy->columns) return false;
    copy->format = (enum pg_format)format;
    copy->formats = p;
    for (uint16_t i = 0; i < copy->columns; i++)
        if (pg_load_16(p + 2 * (size_t)i) > format) return false; // text as a whole has no binary column
    return true;
}
