// PostgreSQL's frontend/backend protocol, 3.0 and 3.2: the messages of the server. Bytes go in; numbers and spans of
// these bytes come out. Plain C, without ruby.h; nothing is allocated and nothing is kept. Each message names its
// section of the protocol documentation (postgresql.org/docs/current/protocol.html). Requests are in requests.h, values
// in values.h, COPY in copy.h.
//
//   struct pg_message message;
//   switch (pg_message(p, end, &message)) {
//   case PG_DONE:    // message.type, message.p, message.end; the next one begins at message.end
//   case PG_MORE:    // message.whole bytes are needed, as soon as the length is known
//   case PG_INVALID: // not a message of the server: close the connection
//   }
#ifndef HEDDLE_WIRE_POSTGRESQL_MESSAGES_H
#define HEDDLE_WIRE_POSTGRESQL_MESSAGES_H

#include "wire/postgresql/numbers.h"

enum {
    PG_HEADER = 5,    // the type's byte, and the length of everything after it
    PG_KEY_MOST = 256 // bytes of a CancelRequest's secret
};

// ---- messages (section "Message Formats")

enum pg_type {
    PG_AUTHENTICATION = 'R',
    PG_BACKEND_KEY_DATA = 'K',
    PG_NEGOTIATE_PROTOCOL_VERSION = 'v',
    PG_PARAMETER_STATUS = 'S',
    PG_READY_FOR_QUERY = 'Z',
    PG_ROW_DESCRIPTION = 'T',
    PG_PARAMETER_DESCRIPTION = 't',
    PG_NO_DATA = 'n',
    PG_DATA_ROW = 'D',
    PG_COMMAND_COMPLETE = 'C',
    PG_EMPTY_QUERY_RESPONSE = 'I',
    PG_PORTAL_SUSPENDED = 's',
    PG_PARSE_COMPLETE = '1',
    PG_BIND_COMPLETE = '2',
    PG_CLOSE_COMPLETE = '3',
    PG_ERROR_RESPONSE = 'E',
    PG_NOTICE_RESPONSE = 'N',
    PG_NOTIFICATION_RESPONSE = 'A',
    PG_COPY_IN_RESPONSE = 'G',
    PG_COPY_OUT_RESPONSE = 'H',
    PG_COPY_BOTH_RESPONSE = 'W',
    PG_COPY_DATA = 'd',
    PG_COPY_DONE = 'c',
    PG_FUNCTION_CALL_RESPONSE = 'V'
};

struct pg_message {
    uint8_t type;
    size_t whole;           // bytes of the message, including its header; 0 until known
    const uint8_t *p, *end; // the message after its header
};

// The header alone: PG_DONE once `type` and `whole` are known.
enum pg_parsed pg_message_header(const uint8_t *p, const uint8_t *end, struct pg_message *message);

// A whole message.
enum pg_parsed pg_message(const uint8_t *p, const uint8_t *end, struct pg_message *message);

// All parsers below take a whole message after its header, and return false for a malformed one. CloseComplete,
// BindComplete, ParseComplete, CopyDone, EmptyQueryResponse, NoData and PortalSuspended are empty, and CopyData is
// plain bytes.

// ---- the state of the session (section "Message Formats"); Ruby reads the other messages of the start-up

// ParameterStatus
bool pg_parameter_status(const uint8_t *p, const uint8_t *end, struct pg_span *name, struct pg_span *value);

// ReadyForQuery
enum pg_transaction { PG_IDLE = 'I', PG_IN_TRANSACTION = 'T', PG_FAILED = 'E' };
bool pg_ready_for_query(const uint8_t *p, const uint8_t *end, enum pg_transaction *transaction);

// ---- results (sections "Simple Query" and "Extended Query")

enum pg_format { PG_TEXT = 0, PG_BINARY = 1 };

// RowDescription
//
//   struct pg_columns columns;
//   if (!pg_columns_begin(p, end, &columns)) invalid
//   while (pg_columns_next(&columns, &column)) use column
//   if (!pg_columns_complete(&columns)) invalid
struct pg_columns {
    const uint8_t *p, *end;
    uint16_t count, index;
};
struct pg_column {
    struct pg_span name;
    uint32_t table;    // its OID; 0 if the column belongs to no table
    int16_t attribute; // the number of the table's column
    uint32_t type;     // its OID
    int16_t type_size; // negative for a variable width
    int32_t modifier;
    enum pg_format format;
};
bool pg_columns_begin(const uint8_t *p, const uint8_t *end, struct pg_columns *columns);
bool pg_columns_next(struct pg_columns *columns, struct pg_column *column);
static inline bool pg_columns_complete(const struct pg_columns *columns)
{
    return columns->index == columns->count && columns->p == columns->end;
}

// ParameterDescription: the OIDs of types.
struct pg_parameters {
    const uint8_t *p;
    uint16_t count;
};
bool pg_parameters(const uint8_t *p, const uint8_t *end, struct pg_parameters *parameters);
static inline uint32_t pg_parameter_type(const struct pg_parameters *parameters, uint16_t index)
{
    return pg_load_32(parameters->p + 4 * (size_t)index);
}

// DataRow: values, read like columns. A tuple of a binary COPY has this form, too.
struct pg_row {
    const uint8_t *p, *end;
    uint16_t count, index;
};
bool pg_row_begin(const uint8_t *p, const uint8_t *end, struct pg_row *row);
static inline bool pg_row_next(struct pg_row *row, struct pg_span *value)
{
    if (row->index == row->count || !pg_take_value(&row->p, row->end, value)) return false;
    row->index++;
    return true;
}
static inline bool pg_row_complete(const struct pg_row *row)
{
    return row->index == row->count && row->p == row->end;
}

// CommandComplete
enum pg_verb {
    PG_VERB_OTHER,
    PG_VERB_SELECT, // also CREATE TABLE AS
    PG_VERB_FETCH,
    PG_VERB_MOVE,
    PG_VERB_ROLLBACK // also the reply to COMMIT of a failed transaction, and ROLLBACK TO SAVEPOINT
};
struct pg_command {
    struct pg_span tag;  // "INSERT 0 3"
    struct pg_span name; // "INSERT"
    enum pg_verb verb;
    bool counted; // `rows` is set
    uint64_t rows;
};
bool pg_command(const uint8_t *p, const uint8_t *end, struct pg_command *command);

// ---- errors and notices (sections "ErrorResponse", "NoticeResponse", and "Error and Notice Message Fields")

enum pg_error_field {
    PG_ERROR_SEVERITY_LOCAL = 'S', // in the server's language
    PG_ERROR_SEVERITY = 'V',       // never translated; servers since 9.6
    PG_ERROR_SQLSTATE = 'C',
    PG_ERROR_MESSAGE = 'M',
    PG_ERROR_DETAIL = 'D',
    PG_ERROR_HINT = 'H',
    PG_ERROR_POSITION = 'P', // in characters, from 1
    PG_ERROR_INTERNAL_POSITION = 'p',
    PG_ERROR_INTERNAL_QUERY = 'q',
    PG_ERROR_WHERE = 'W',
    PG_ERROR_SCHEMA = 's',
    PG_ERROR_TABLE = 't',
    PG_ERROR_COLUMN = 'c',
    PG_ERROR_TYPE = 'd',
    PG_ERROR_CONSTRAINT = 'n',
    PG_ERROR_FILE = 'F',
    PG_ERROR_LINE = 'L',
    PG_ERROR_ROUTINE = 'R'
};
struct pg_errors {
    const uint8_t *p, *end;
};
static inline void pg_errors_begin(const uint8_t *p, const uint8_t *end, struct pg_errors *errors)
{
    *errors = (struct pg_errors){p, end};
}
bool pg_errors_next(struct pg_errors *errors, uint8_t *field, struct pg_span *value);
// The first field of each letter. Fields that the server did not send have no `at`.
struct pg_error_fields {
    struct pg_span of[UINT8_MAX + 1];
};
void pg_error_fields(const uint8_t *p, const uint8_t *end, struct pg_error_fields *fields);
// One field; false if the server did not send it.
bool pg_error_field(const uint8_t *p, const uint8_t *end, uint8_t field, struct pg_span *value);

// ---- notifications (section "Asynchronous Operations"; NotificationResponse)

struct pg_notification {
    uint32_t process;
    struct pg_span channel, payload;
};
bool pg_notification(const uint8_t *p, const uint8_t *end, struct pg_notification *notification);

// ---- COPY (section "COPY Operations"; CopyInResponse, CopyOutResponse, CopyBothResponse)

struct pg_copy {
    enum pg_format format;
    uint16_t columns;
    const uint8_t *formats; // two bytes for each column
};
bool pg_copy_response(const uint8_t *p, const uint8_t *end, struct pg_copy *copy);

#endif
