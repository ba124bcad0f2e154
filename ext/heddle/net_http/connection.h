// A connection that may outlive its session: KeepAlive::Connection. It hangs on the BufferedIO of the session that has
// it, or is in the store (keyed_table.h); never both.
#ifndef HEDDLE_NET_HTTP_CONNECTION_H
#define HEDDLE_NET_HTTP_CONNECTION_H

#include "net_http/clock.h"
#include "net_http/key.h"

// connection.c has a table of what may follow what.
enum net_http_state {
    NET_HTTP_NEW,         // connected, before its first exchange
    NET_HTTP_IN_EXCHANGE, // or after an exchange that did not come to its end
    NET_HTTP_BEGUN,       // in an exchange whose socket was quiet: begin_transport need not look again
    NET_HTTP_REUSABLE,    // after an exchange that was whole
    NET_HTTP_UNCERTAIN,   // after one of whose end there is a doubt: the next one will tell
    NET_HTTP_IDLE,        // without a session
    NET_HTTP_PINNED,      // bound to this session: closed afterwards
    NET_HTTP_STATES,
};

struct net_http_connection {
    VALUE key;                       // the KeepAlive::Key
    VALUE io;                        // TCPSocket, Socket or SSLSocket
    VALUE session;                   // the Net::HTTP that took it from the store, until its first answer begins
    VALUE retries;                   // max_retries that the session gets back when that begins; nil: it has them
    VALUE response;                  // the response whose body the library itself has read to its end
    VALUE disguised;                 // the request whose implied "Connection: close" is not sent
    struct net_http_key values;      // those of the key
    double named_at;                 // monotonic seconds when its name was looked up
    double expires_at;               // when it must be closed; NAN: it has never rested
    struct net_http_offsets offsets; // when it began to rest
    unsigned forks;                  // forks_seen() when its session began
    enum net_http_state state;
};

// A KeepAlive::Connection's struct.
struct net_http_connection *net_http_connection_get(VALUE connection);

// The KeepAlive::Connection of a BufferedIO, or nil; and its struct, or NULL.
VALUE net_http_connection_at(VALUE buffered);
struct net_http_connection *net_http_connection_of(VALUE buffered);
void net_http_connection_set(VALUE buffered, VALUE connection);

// A pinned connection stays so.
void net_http_connection_become(struct net_http_connection *connection, enum net_http_state next);
bool net_http_connection_exchanges(const struct net_http_connection *connection);

bool net_http_connection_expired(const struct net_http_connection *connection, double now);

// Looks at a socket without waiting. Consumes nothing. Returns true if it is open and has received nothing, neither
// bytes nor the end; nil if bytes have come over TLS, which may be a session ticket; otherwise false.
VALUE net_http_look(VALUE io);

// The same, but reads session tickets.
bool net_http_connection_quiet(VALUE connection);

void net_http_connection_close(VALUE connection);

#endif
