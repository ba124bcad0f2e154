// Decides whether a connection of HTTP/1.1 may carry another request after an exchange (RFC 9112, 6.3 and 9.3). Where a
// rule could decide wrongly, it decides against reuse: whoever gets the connection next must never get the rest of this
// answer. Whether the two messages ask for a close is the caller's to know. Plain C without ruby.h; allocates nothing.
#ifndef HEDDLE_WIRE_HTTP_REUSE_H
#define HEDDLE_WIRE_HTTP_REUSE_H

#include "wire/http/head.h"

// The fields of one message on which that depends. Begin with zeros, and add each value of each field.
struct wire_http_facts {
    uint32_t codings, lengths; // how many values of Transfer-Encoding and of Content-Length
    uint64_t length;           // the last Content-Length
    uint64_t timeout;          // seconds, of Keep-Alive
    bool chunked;              // the last Transfer-Encoding is "chunked"
    bool sized;                // the last Content-Length is a number
    bool binds;                // authenticates the connection, not the request: NTLM, Negotiate (RFC 4559)
    bool upgrade, expect;      // the message has such a field
    bool used_up;              // Keep-Alive allows no further request
    bool timed;                // Keep-Alive has a timeout
};

// Whether the name of such a field may have this length.
static inline bool wire_http_is_fact(size_t length)
{
    return length < 32 && (0xf64c0u >> length & 1);
}

void wire_http_facts_add(struct wire_http_facts *facts, struct wire_http_span name, struct wire_http_span value);

enum wire_http_sent_body {
    HTTP_SENT_NONE,
    HTTP_SENT_COUNTED, // with a length that the client itself computed
    HTTP_SENT_STREAM,  // from a stream, whose length the caller of the client announced
};

struct wire_http_exchange {
    struct wire_http_facts sent, received;
    struct wire_http_span method, code, version; // version: of the answer, "1.1"
    enum wire_http_sent_body body;
    uint64_t streamed;      // bytes of HTTP_SENT_STREAM; UINT64_MAX: unknown
    bool reads_bodies;      // the client reads the bodies of answers to this request
    bool code_permits_body; // … and of answers with this code
    bool read_to_the_end;   // the client has read the body of this answer, to its end
};

enum wire_http_reuse {
    HTTP_PINNED,    // the connection must not be used for anybody else
    HTTP_UNCERTAIN, // a server may still wait for a body that it expected: the next exchange will tell
    HTTP_REUSABLE,
};

enum wire_http_reuse wire_http_reuse(const struct wire_http_exchange *exchange);

// The seconds from the end of an answer for which the connection may be used again, `most` at most.
double wire_http_idle_seconds(const struct wire_http_facts *received, double most);

#endif
