#include "wire/wire_postgresql.h"

// ---- messages

uint32_t pg_length_most(uint8_t type)
{
    switch (type) {
    case PG_DATA_ROW:
    case PG_COPY_DATA:
    case PG_FUNCTION_CALL_RESPONSE:
        return UINT32_C(0x3fffffff) + 4; // the server allocates no more
    case PG_ERROR_RESPONSE:
    case PG_NOTICE_RESPONSE:
        return 64 << 20; // a message may quote a whole statement, or a value
    case PG_ROW_DESCRIPTION:
        return 16 << 20; // 65,535 names of 63 bytes would fit into six
    case PG_PARAMETER_STATUS:
        return 1 << 20;
    case PG_PARAMETER_DESCRIPTION:
        return 4 + 2 + 4 * 65535;
    case PG_COPY_IN_RESPONSE:
    case PG_COPY_OUT_RESPONSE:
    case PG_COPY_BOTH_RESPONSE:
        return 4 + 1 + 2 + 2 * 65535;
    case PG_AUTHENTICATION:
    case PG_NEGOTIATE_PROTOCOL_VERSION:
    case PG_NOTIFICATION_RESPONSE:
        return 64 << 10;
    case PG_COMMAND_COMPLETE:
        return 4 << 10;
    case PG_BACKEND_KEY_DATA:
        return 4 + 4 + PG_KEY_MOST;
    case PG_READY_FOR_QUERY:
        return 5;
    case PG_NO_DATA:
    case PG_EMPTY_QUERY_RESPONSE:
    case PG_PORTAL_SUSPENDED:
    case PG_PARSE_COMPLETE:
    case PG_BIND_COMPLETE:
    case PG_CLOSE_COMPLETE:
    case PG_COPY_DONE:
        return 4;
    default:
        return 0;
    }
}

enum pg_parsed pg_message_header(const uint8_t *p, const uint8_t *end, struct pg_message *message)
{
    *message = (struct pg_message){0};
    if (p >= end) return PG_MORE;
    uint32_t most = pg_length_most(*p);
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

// ---- start-up

enum pg_parsed pg_old_error(const uint8_t *p, const uint8_t *end, struct pg_span *text)
{
    // libpq's rule: a length that no error can have is the beginning of a text.
    enum { LEAST = 8, MOST = 30000 };
    if (p >= end) return PG_MORE;
    if (*p != 'E') return PG_INVALID;
    if (end - p < PG_HEADER) return PG_MORE;
    uint32_t length = pg_load_32(p + 1);
    if (length >= LEAST && length <= MOST) return PG_INVALID;
    p++;
    if (pg_take_string(&p, end, text)) return PG_DONE;
    return end - p > MOST ? PG_INVALID : PG_MORE;
}

static bool valid_mechanisms(struct pg_span list)
{
    const uint8_t *p = list.at, *end = list.at + list.length;
    struct pg_span mechanism;
    uint32_t count = 0;
    while (pg_take_string(&p, end, &mechanism)) {
        if (mechanism.length == 0) return count > 0 && p == end;
        count++;
    }
    return false;
}

bool pg_authentication(const uint8_t *p, const uint8_t *end, struct pg_authentication *authentication)
{
    *authentication = (struct pg_authentication){0};
    if (!pg_take_32(&p, end, &authentication->code)) return false;
    authentication->data = (struct pg_span){p, (size_t)(end - p)};
    uint32_t code = authentication->code;
    if (code == 1 || code > PG_AUTHENTICATION_SASL_FINAL) {
        authentication->kind = PG_AUTHENTICATION_OTHER;
        return true;
    }
    authentication->kind = (enum pg_authentication_kind)code;
    switch (authentication->kind) {
    case PG_AUTHENTICATION_MD5_PASSWORD:
        if (end - p != PG_SALT) return false;
        memcpy(authentication->salt, p, PG_SALT);
        return true;
    case PG_AUTHENTICATION_SASL:
        return valid_mechanisms(authentication->data);
    case PG_AUTHENTICATION_CRYPT_PASSWORD:
    case PG_AUTHENTICATION_GSS_CONTINUE:
    case PG_AUTHENTICATION_SASL_CONTINUE:
    case PG_AUTHENTICATION_SASL_FINAL:
        return true;
    default:
        return p == end;
    }
}

const char *pg_authentication_name(enum pg_authentication_kind kind)
{
    switch (kind) {
    case PG_AUTHENTICATION_OK:
        return "none";
    case PG_AUTHENTICATION_KERBEROS_V5:
        return "Kerberos V5";
    case PG_AUTHENTICATION_CLEARTEXT_PASSWORD:
        return "a password in clear text";
    case PG_AUTHENTICATION_CRYPT_PASSWORD:
        return "crypt";
    case PG_AUTHENTICATION_MD5_PASSWORD:
        return "MD5";
    case PG_AUTHENTICATION_SCM_CREDENTIAL:
        return "SCM credentials";
    case PG_AUTHENTICATION_GSS:
    case PG_AUTHENTICATION_GSS_CONTINUE:
        return "GSSAPI";
    case PG_AUTHENTICATION_SSPI:
        return "SSPI";
    case PG_AUTHENTICATION_SASL:
    case PG_AUTHENTICATION_SASL_CONTINUE:
    case PG_AUTHENTICATION_SASL_FINAL:
        return "SASL";
    default:
        return "unknown";
    }
}

static bool next_string(struct pg_span *list, struct pg_span *string)
{
    const uint8_t *p = list->at, *end = list->at + list->length;
    if (!pg_take_string(&p, end, string)) return false;
    *list = (struct pg_span){p, (size_t)(end - p)};
    return true;
}

bool pg_next_mechanism(struct pg_span *list, struct pg_span *mechanism)
{
    return next_string(list, mechanism) && mechanism->length > 0;
}

bool pg_backend_key(const uint8_t *p, const uint8_t *end, uint32_t protocol, struct pg_backend_key *key)
{
    if (!pg_take_32(&p, end, &key->process)) return false;
    key->key = (struct pg_span){p, (size_t)(end - p)};
    if (protocol < PG_PROTOCOL_3_2) return key->key.length == PG_KEY_LEAST;
    return key->key.length >= PG_KEY_LEAST && key->key.length <= PG_KEY_MOST;
}

bool pg_negotiated(const uint8_t *p, const uint8_t *end, struct pg_negotiated *negotiated)
{
    if (!pg_take_32(&p, end, &negotiated->protocol) || !pg_take_32(&p, end, &negotiated->refused)) return false;
    // Servers send the whole version; the documentation mentions only the minor one.
    if (negotiated->protocol <= UINT16_MAX) negotiated->protocol |= PG_PROTOCOL_3_0;
    if (negotiated->protocol >> 16 != 3) return false;
    negotiated->options = (struct pg_span){p, (size_t)(end - p)};
    struct pg_span option;
    for (uint32_t i = 0; i < negotiated->refused; i++)
        if (!pg_take_string(&p, end, &option)) return false;
    return p == end;
}

bool pg_next_option(struct pg_span *options, struct pg_span *option)
{
    return next_string(options, option);
}

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

static bool same(struct pg_span span, const char *text)
{
    return span.length == strlen(text) && memcmp(span.at, text, span.length) == 0;
}

static enum pg_verb verb_of(struct pg_span name)
{
    static const struct {
        const char *name;
        enum pg_verb verb;
    } verbs[] = {{"SELECT", PG_VERB_SELECT},
                 {"INSERT", PG_VERB_INSERT},
                 {"UPDATE", PG_VERB_UPDATE},
                 {"DELETE", PG_VERB_DELETE},
                 {"MERGE", PG_VERB_MERGE},
                 {"FETCH", PG_VERB_FETCH},
                 {"MOVE", PG_VERB_MOVE},
                 {"COPY", PG_VERB_COPY},
                 {"BEGIN", PG_VERB_BEGIN},
                 {"START TRANSACTION", PG_VERB_BEGIN},
                 {"COMMIT", PG_VERB_COMMIT},
                 {"ROLLBACK", PG_VERB_ROLLBACK},
                 {"SAVEPOINT", PG_VERB_SAVEPOINT},
                 {"RELEASE", PG_VERB_RELEASE},
                 {"PREPARE TRANSACTION", PG_VERB_PREPARE_TRANSACTION},
                 {"COMMIT PREPARED", PG_VERB_COMMIT_PREPARED},
                 {"ROLLBACK PREPARED", PG_VERB_ROLLBACK_PREPARED},
                 {"SET", PG_VERB_SET},
                 {"RESET", PG_VERB_RESET},
                 {"DISCARD", PG_VERB_DISCARD},
                 {"DISCARD ALL", PG_VERB_DISCARD},
                 {"DEALLOCATE", PG_VERB_DEALLOCATE},
                 {"DEALLOCATE ALL", PG_VERB_DEALLOCATE},
                 {"LISTEN", PG_VERB_LISTEN},
                 {"UNLISTEN", PG_VERB_UNLISTEN}};
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        if (same(name, verbs[i].name)) return verbs[i].verb;
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

bool pg_function_result(const uint8_t *p, const uint8_t *end, struct pg_span *value)
{
    return pg_take_value(&p, end, value) && p == end;
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
