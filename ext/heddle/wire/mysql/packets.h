// The client/server protocol of MySQL and MariaDB: packets in, numbers and spans of bytes out. Plain C, without ruby.h;
// allocates nothing and keeps nothing. The formats follow MySQL's and MariaDB's protocol documentation
// (dev.mysql.com/doc/dev/mysql-server, mariadb.com/kb/en/clientserver-protocol).
#ifndef HEDDLE_WIRE_MYSQL_PACKETS_H
#define HEDDLE_WIRE_MYSQL_PACKETS_H

#include "wire/mysql/numbers.h"

enum {
    MYSQL_HEADER = 4,                // bytes before each packet's payload
    MYSQL_LARGEST_PACKET = 0xffffff, // a longer payload is split; its last packet is shorter than this
    MYSQL_SCRAMBLE = 20
};

// Capabilities of client and server that change what is read; lib/heddle/db/mysql/login.rb has the others. Those above
// 32 bits exist in MariaDB only.
#define MYSQL_CAN_LONG_PASSWORD  (UINT64_C(1) << 0) // MariaDB leaves it unset, to identify itself
#define MYSQL_CAN_PLUGIN_AUTH    (UINT64_C(1) << 19)
#define MYSQL_CAN_DEPRECATE_EOF  (UINT64_C(1) << 24)
#define MYSQL_CAN_CACHE_METADATA (UINT64_C(1) << 36)

enum mysql_status {
    MYSQL_IN_TRANSACTION = 0x0001,
    MYSQL_AUTOCOMMIT = 0x0002,
    MYSQL_MORE_RESULTS = 0x0008,
    MYSQL_CURSOR_EXISTS = 0x0040,
    MYSQL_LAST_ROW_SENT = 0x0080,
    MYSQL_NO_BACKSLASH_ESCAPES = 0x0200,
    MYSQL_SESSION_CHANGED = 0x4000
};

// ---- packets

// The header at `p`: the length of the payload, and the packet's number in its exchange.
static inline uint32_t mysql_packet_length(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16;
}

static inline uint8_t mysql_packet_sequence(const uint8_t *p)
{
    return p[3];
}

static inline void mysql_put_header(uint8_t *p, size_t length, uint8_t sequence)
{
    p[0] = (uint8_t)length;
    p[1] = (uint8_t)(length >> 8);
    p[2] = (uint8_t)(length >> 16);
    p[3] = sequence;
}

// Writes a number in one to nine bytes. Returns the number of bytes.
size_t mysql_put_number(uint8_t *p, uint64_t number);

// The functions below take the whole payload of a packet, and return false for a malformed one.

struct mysql_greeting {
    struct mysql_span version;
    struct mysql_span plugin; // the authentication plugin that the server proposes
    uint8_t scramble[MYSQL_SCRAMBLE];
    uint64_t capabilities;
    uint32_t thread; // the connection's id for KILL
    uint16_t status;
    bool mariadb;
};
bool mysql_greeting(const uint8_t *p, const uint8_t *end, struct mysql_greeting *greeting);

enum mysql_reply {
    MYSQL_REPLY_OK,
    MYSQL_REPLY_ERROR,
    MYSQL_REPLY_END,    // the end of columns or rows
    MYSQL_REPLY_INFILE, // the server asks for a local file
    MYSQL_REPLY_OTHER,  // a column count or a row
    MYSQL_REPLY_INVALID
};
// The kind of a packet where a result may begin, and where a row may come.
enum mysql_reply mysql_reply(const uint8_t *p, const uint8_t *end);
enum mysql_reply mysql_row_reply(const uint8_t *p, const uint8_t *end, bool text, bool deprecate_eof);

struct mysql_ok {
    uint64_t affected, last_id;
    uint16_t status, warnings;
    bool session_changed; // the server reports a change of the session, and not only the state of its transaction
};
// For OK packets, and for the new form of the end of rows: the two differ in their first byte only.
bool mysql_ok(const uint8_t *p, const uint8_t *end, struct mysql_ok *ok);
// The old form of the end of columns or rows.
bool mysql_end(const uint8_t *p, const uint8_t *end, struct mysql_ok *ok);

struct mysql_error {
    uint16_t code;
    struct mysql_span state; // five characters, or empty
    struct mysql_span message;
};
bool mysql_error(const uint8_t *p, const uint8_t *end, struct mysql_error *error);

struct mysql_prepared {
    uint32_t id;
    uint16_t columns, parameters;
};
bool mysql_prepared(const uint8_t *p, const uint8_t *end, struct mysql_prepared *prepared);

// The number of columns of a result. With `announced`, the packet also says whether column definitions follow.
bool mysql_result_head(const uint8_t *p, const uint8_t *end, bool announced, uint32_t *columns, bool *definitions);

struct mysql_column {
    struct mysql_span schema, table, original_table, name, original_name;
    uint32_t length;
    uint16_t charset, flags;
    uint8_t type, decimals;
};
bool mysql_column(const uint8_t *p, const uint8_t *end, struct mysql_column *column);

#endif
