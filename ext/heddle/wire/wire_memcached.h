// memcached's meta protocol, and what little is used of the older text protocol beside it, as memcached's doc/protocol.txt
// describes them. Plain C over bytes, without ruby.h; nothing is allocated and nothing is kept.
#ifndef HEDDLE_WIRE_WIRE_MEMCACHED_H
#define HEDDLE_WIRE_WIRE_MEMCACHED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    MEMCACHED_KEY_MOST = 250,      // bytes of a key as they are sent
    MEMCACHED_REQUEST_MOST = 512,  // bytes of the line of a request
    MEMCACHED_REPLY_MOST = 8 << 10 // … of a reply
};

// ---- keys

enum memcached_key {
    MEMCACHED_KEY_PLAIN,   // is sent as it is
    MEMCACHED_KEY_ENCODED, // has spaces, control characters or bytes above 127: is sent in base64
    MEMCACHED_KEY_EMPTY,
    MEMCACHED_KEY_TOO_LONG // the way it is sent
};

enum memcached_key memcached_key(const uint8_t *p, size_t length);

// ---- requests

enum memcached_verb { MEMCACHED_GET, MEMCACHED_SET, MEMCACHED_DELETE, MEMCACHED_ARITHMETIC };

// What a request says, and so what of its record is looked at.
enum {
    MEMCACHED_SEND_TTL = 1 << 0,     // T: seconds
    MEMCACHED_SEND_CAS = 1 << 1,     // C: only if it has this
    MEMCACHED_SEND_FLAGS = 1 << 2,   // F
    MEMCACHED_SEND_VIVIFY = 1 << 3,  // N: make it if it is missing, to live so many seconds
    MEMCACHED_SEND_RECACHE = 1 << 4, // R: let one win once less than so many seconds are left
    MEMCACHED_SEND_DELTA = 1 << 5,   // D
    MEMCACHED_SEND_INITIAL = 1 << 6, // J
    MEMCACHED_SEND_MODE = 1 << 7,    // M
    MEMCACHED_INVALIDATE = 1 << 8,   // I: mark it stale
    MEMCACHED_QUIET = 1 << 9,        // q: no answer to what is usual
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
    size_t value_length; // of SET: the value and "\r\n" follow the request
    uint32_t opaque;     // comes back with the reply
    uint32_t flags;
    uint64_t cas, delta, initial;
    int32_t ttl, vivify, recache;
    char mode; // of SET E A P R S, of ARITHMETIC I D
};

// Writes the line of the request, at most MEMCACHED_REQUEST_MOST bytes, and returns how many.
size_t memcached_write(const struct memcached_request *request, uint8_t *out);

// ---- replies

enum memcached_status {
    MEMCACHED_HD, // done
    MEMCACHED_VA, // done, and a value follows
    MEMCACHED_EN, // a miss
    MEMCACHED_NS, // not stored
    MEMCACHED_EX, // somebody else changed it
    MEMCACHED_NF, // not found
    MEMCACHED_MN, // the answer to "mn"
    MEMCACHED_ME, // … to "me"; text
    // Of the text protocol:
    MEMCACHED_OK,
    MEMCACHED_RESET,
    MEMCACHED_END,
    MEMCACHED_STORED,
    MEMCACHED_VERSION, // text
    MEMCACHED_STAT,    // text
    // What went wrong:
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
    MEMCACHED_WON = 1 << 6,     // W: this client shall make it anew
    MEMCACHED_STALE = 1 << 7,   // X
    MEMCACHED_WAITING = 1 << 8, // Z: another has won
    MEMCACHED_HAS_SIZE = 1 << 9
};

struct memcached_reply {
    enum memcached_status status;
    unsigned fields;
    size_t length;       // of the line with its end
    size_t value_length; // of VA: so many bytes and "\r\n" follow the line
    uint32_t flags, opaque;
    uint64_t cas, access, size;
    int64_t ttl; // -1: for ever
    bool hit;
    const uint8_t *text; // without the end of the line
    size_t text_length;
};

enum memcached_parsed { MEMCACHED_DONE, MEMCACHED_MORE, MEMCACHED_INVALID };

// Reads the line of a reply. Lines end with "\r\n"; whatever this client has not asked for is invalid, for then it is not
// the answer to what it has asked.
enum memcached_parsed memcached_reply(const uint8_t *p, const uint8_t *end, struct memcached_reply *reply);

// Digits alone that fit. False for anything else, nothing included.
bool memcached_number(const uint8_t *p, const uint8_t *end, uint64_t *number);

// CRC-32 as zlib's, by which keys are spread over servers.
uint32_t memcached_crc32(const uint8_t *p, size_t length);

#endif
