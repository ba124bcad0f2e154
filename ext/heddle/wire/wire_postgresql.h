// PostgreSQL's frontend/backend protocol, 3.0 and 3.2: the messages of the server. Bytes go in; numbers and spans of
// these bytes come out. Plain C, without ruby.h; nothing is allocated and nothing is kept. Each message names its
// section of the protocol documentation (postgresql.org/docs/current/protocol.html). Requests are in
// wire_postgresql_requests.h, values in wire_postgresql_values.h, COPY in wire_postgresql_copy.h.
//
//   struct pg_message message;
//   switch (pg_message(p, end, &message)) {
//   case PG_DONE:    // message.type, message.p, message.end; the next one begins at message.end
//   case PG_MORE:    // message.whole bytes are needed, as soon as the length is known
//   case PG_INVALID: // not a message of the server: close the connection
//   }
#ifndef HEDDLE_WIRE_WIRE_POSTGRESQL_H
#define HEDDLE_WIRE_WIRE_POSTGRESQL_H

#include "wire/wire_postgresql_numbers.h"

enum {
    PG_HEADER = 5, // the type's byte, and the length of everything after it
    PG_KEY_LEAST = 4,
    PG_KEY_MOST = 256, // bytes of a CancelRequest's secret
    PG_SALT = 4
};

#define PG_PROTOCOL_3_0 UINT32_C(0x30000)
#define PG_PROTOCOL_3_2 UINT32_C(0x30002)

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

// The largest length that this client accepts for a type, including its own four bytes; 0 for a type that no server
// sends. DataRow, CopyData and FunctionCallResponse may have 1 GiB: a reader makes room only for what has arrived.
uint32_t pg_length_most(uint8_t type);

// The header alone: PG_DONE once `type` and `whole` are known.
enum pg_parsed pg_message_header(const uint8_t *p, const uint8_t *end, struct pg_message *message);

// A whole message.
enum pg_parsed pg_message(const uint8_t *p, const uint8_t *end, struct pg_message *message);

// All parsers below take a whole message after its header, and return false for a malformed one. CloseComplete,
// BindComplete, ParseComplete, CopyDone, EmptyQueryResponse, NoData and PortalSuspended are empty, and CopyData is
// plain bytes.

// ---- start-up (sections "Message Flow", "Start-up", and "SSL Session Encryption")

// The one byte that answers SSLRequest. Bytes that arrive together with PG_TLS_YES come from an attacker in between.
enum pg_tls_answer { PG_TLS_YES, PG_TLS_NO, PG_TLS_ERROR, PG_TLS_INVALID };
static inline enum pg_tls_answer pg_tls_answer(uint8_t byte)
{
    return byte == 'S' ? PG_TLS_YES : byte == 'N' ? PG_TLS_NO : byte == 'E' ? PG_TLS_ERROR : PG_TLS_INVALID;
}

// An error in the form of protocol 2, 'E' and a string: servers send one if they cannot fork. PG_INVALID for other
// bytes. Call it only during the start-up, and before pg_message.
enum pg_parsed pg_old_error(const uint8_t *p, const uint8_t *end, struct pg_span *text);

// AuthenticationOk, AuthenticationCleartextPassword, AuthenticationMD5Password, AuthenticationSASL, …
enum pg_authentication_kind {
    PG_AUTHENTICATION_OK = 0,
    PG_AUTHENTICATION_KERBEROS_V5 = 2,
    PG_AUTHENTICATION_CLEARTEXT_PASSWORD = 3,
    PG_AUTHENTICATION_CRYPT_PASSWORD = 4, // of servers before 8.4
    PG_AUTHENTICATION_MD5_PASSWORD = 5,   // `salt`
    PG_AUTHENTICATION_SCM_CREDENTIAL = 6, // of servers before 9.1
    PG_AUTHENTICATION_GSS = 7,
    PG_AUTHENTICATION_GSS_CONTINUE = 8, // `data`
    PG_AUTHENTICATION_SSPI = 9,
    PG_AUTHENTICATION_SASL = 10,          // `data`: the mechanisms' names, see pg_next_mechanism
    PG_AUTHENTICATION_SASL_CONTINUE = 11, // `data`
    PG_AUTHENTICATION_SASL_FINAL = 12,    // `data`
    PG_AUTHENTICATION_OTHER               // `code` says which
};
struct pg_authentication {
    enum pg_authentication_kind kind;
    uint32_t code;
    uint8_t salt[PG_SALT];
    struct pg_span data;
};
bool pg_authentication(const uint8_t *p, const uint8_t *end, struct pg_authentication *authentication);

// The name for error messages, such as "SSPI" or "SASL" (SCRAM-SHA-256 is a mechanism of SASL).
const char *pg_authentication_name(enum pg_authentication_kind kind);

// Takes the first name from `list`; false if none is left.
bool pg_next_mechanism(struct pg_span *list, struct pg_span *mechanism);

// BackendKeyData. The key has four bytes in protocol 3.0, and 4 to 256 in 3.2.
struct pg_backend_key {
    uint32_t process;
    struct pg_span key;
};
bool pg_backend_key(const uint8_t *p, const uint8_t *end, uint32_t protocol, struct pg_backend_key *key);

// NegotiateProtocolVersion
struct pg_negotiated {
    uint32_t protocol; // the newest that the server supports
    uint32_t refused;  // number of refused options, which `options` names
    struct pg_span options;
};
bool pg_negotiated(const uint8_t *p, const uint8_t *end, struct pg_negotiated *negotiated);
bool pg_next_option(struct pg_span *options, struct pg_span *option);

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
    PG_VERB_INSERT,
    PG_VERB_UPDATE,
    PG_VERB_DELETE,
    PG_VERB_MERGE,
    PG_VERB_FETCH,
    PG_VERB_MOVE,
    PG_VERB_COPY,
    PG_VERB_BEGIN, // and START TRANSACTION
    PG_VERB_COMMIT,
    PG_VERB_ROLLBACK, // also the reply to COMMIT of a failed transaction, and ROLLBACK TO SAVEPOINT
    PG_VERB_SAVEPOINT,
    PG_VERB_RELEASE,
    PG_VERB_PREPARE_TRANSACTION,
    PG_VERB_COMMIT_PREPARED,
    PG_VERB_ROLLBACK_PREPARED,
    PG_VERB_SET,
    PG_VERB_RESET,
    PG_VERB_DISCARD,
    PG_VERB_DEALLOCATE,
    PG_VERB_LISTEN,
    PG_VERB_UNLISTEN
};
struct pg_command {
    struct pg_span tag;  // "INSERT 0 3"
    struct pg_span name; // "INSERT"
    enum pg_verb verb;
    bool counted; // `rows` is set
    uint64_t rows;
};
bool pg_command(const uint8_t *p, const uint8_t *end, struct pg_command *command);

// FunctionCallResponse
bool pg_function_result(const uint8_t *p, const uint8_t *end, struct pg_span *value);

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
// Returns whether all fields were read, and only the final byte is left.
static inline bool pg_errors_complete(const struct pg_errors *errors)
{
    return errors->end - errors->p == 1 && *errors->p == 0;
}
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
