// memcached's meta protocol, and the few commands used of the older text protocol, as in memcached's doc/protocol.txt.
// Plain C over bytes, without ruby.h; allocates nothing and keeps nothing.
#ifndef HEDDLE_WIRE_MEMCACHED_MESSAGES_H
#define HEDDLE_WIRE_MEMCACHED_MESSAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    MEMCACHED_KEY_MOST = 250,      // bytes of a key as sent
    MEMCACHED_REQUEST_MOST = 512,  // bytes of a request's line
    MEMCACHED_REPLY_MOST = 8 << 10 // bytes of a reply's line
};

// ---- keys

enum memcached_key {
    MEMCACHED_KEY_PLAIN,   // sent unchanged
    MEMCACHED_KEY_ENCODED, // has spaces, control characters or bytes above 127: sent in base64
    MEMCACHED_KEY_EMPTY,
    MEMCACHED_KEY_TOO_LONG // as sent
};

enum memcached_key memcached_key(const uint8_t *p, size_t length);

// ---- requests

enum memcached_verb { MEMCACHED_GET, MEMCACHED_SET, MEMCACHED_DELETE, MEMCACHED_ARITHMETIC };

// Which fields a request has: only these members of its record are read.
enum {
    MEMCACHED_SEND_TTL = 1 << 0,     // T: seconds
    MEMCACHED_SEND_CAS = 1 << 1,     // C: only if the entry has this CAS
    MEMCACHED_SEND_FLAGS = 1 << 2,   // F
    MEMCACHED_SEND_VIVIFY = 1 << 3,  // N: create a missing entry, to live this many seconds
    MEMCACHED_SEND_RECACHE = 1 << 4, // R: let one client recache once fewer seconds than this are left
    MEMCACHED_SEND_DELTA = 1 << 5,   // D
    MEMCACHED_SEND_INITIAL = 1 << 6, // J
    MEMCACHED_SEND_MODE = 1 << 7,    // M
    MEMCACHED_INVALIDATE = 1 << 8,   // I: mark the entry stale
    MEMCACHED_QUIET = 1 << 9,        // q: no reply in the usual case
    MEMCACHED_WANT_VALUE = 1 << 10,  // v
    MEMCACHED_WANT_FLAGS = 1 << 11,  // f
    MEMCACHED_WANT_CAS = 1 << 12,    // c
    MEMCACHED_WANT_TTL = 1 << 13,    // t
    MEMCACHED_WANT_HIT = 1 << 14,    // h
    MEMCACHED_WANT_ACCESS = 1 << 15  // l
};

struct memcached_request {
    enum memcached_verb verb;
    unsigned fields;
    const uint8_t *key; // of kind PLAIN or ENCODED
    size_t key_length;
    bool key_encoded;
    size_t value_length; // of SET: the value and "\r\n" follow the request's line
    uint32_t opaque;     // repeated in the reply
    uint32_t flags;
    uint64_t cas, delta, initial;
    int32_t ttl, vivify, recache;
    char mode; // of SET: E A P R S; of ARITHMETIC: I D
};

// Writes the request's line, at most MEMCACHED_REQUEST_MOST bytes. Returns the number of bytes.
size_t memcached_write(const struct memcached_request *request, uint8_t *out);

// ---- replies

enum memcached_status {
    MEMCACHED_HD, // success
    MEMCACHED_VA, // success, and a value follows
    MEMCACHED_EN, // a miss
    MEMCACHED_NS, // not stored
    MEMCACHED_EX, // another client changed the entry
    MEMCACHED_NF, // not found
    MEMCACHED_MN, // reply to "mn"
    MEMCACHED_ME, // reply to "me"; text
    // Of the text protocol:
    MEMCACHED_OK,
    MEMCACHED_RESET,
    MEMCACHED_END,
    MEMCACHED_STORED,
    MEMCACHED_VERSION, // text
    MEMCACHED_STAT,    // text
    // Errors:
    MEMCACHED_ERROR,
    MEMCACHED_CLIENT_ERROR, // text
    MEMCACHED_SERVER_ERROR  // text
};

// Which fields a reply has.
enum {
    MEMCACHED_HAS_FLAGS = 1 << 0,
    MEMCACHED_HAS_CAS = 1 << 1,
    MEMCACHED_HAS_TTL = 1 << 2,
    MEMCACHED_HAS_HIT = 1 << 3,
    MEMCACHED_HAS_ACCESS = 1 << 4,
    MEMCACHED_HAS_OPAQUE = 1 << 5,
    MEMCACHED_WON = 1 << 6,     // W: this client must recache the entry
    MEMCACHED_STALE = 1 << 7,   // X
    MEMCACHED_WAITING = 1 << 8, // Z: another client recaches
    MEMCACHED_HAS_SIZE = 1 << 9
};

struct memcached_reply {
    enum memcached_status status;
    unsigned fields;
    size_t length;       // of the line, including its end
    size_t value_length; // of VA: this many bytes and "\r\n" follow the line
    uint32_t flags, opaque;
    uint64_t cas, access, size;
    int64_t ttl; // -1: for ever
    bool hit;
    const uint8_t *text; // without the line's end
    size_t text_length;
};

enum memcached_parsed { MEMCACHED_DONE, MEMCACHED_MORE, MEMCACHED_INVALID };

// Parses a reply's line, which must end with "\r\n". A field that this client never asks for is invalid: such a reply
// does not belong to its request.
enum memcached_parsed memcached_reply(const uint8_t *p, const uint8_t *end, struct memcached_reply *reply);

// Parses a number of digits only. False for anything else, including an empty span and a number that does not fit.
bool memcached_number(const uint8_t *p, const uint8_t *end, uint64_t *number);

// zlib's CRC-32, which assigns keys to servers.
uint32_t memcached_crc32(const uint8_t *p, size_t length);

#endif
