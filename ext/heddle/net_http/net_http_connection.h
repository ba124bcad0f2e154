// A connection that may outlive its session: KeepAlive::Connection. It hangs on the BufferedIO of the session that has
// it, or is in the store (net_http_places.h); never both.
#ifndef HEDDLE_NET_HTTP_NET_HTTP_CONNECTION_H
#define HEDDLE_NET_HTTP_NET_HTTP_CONNECTION_H

#include "net_http/net_http_clock.h"
#include "net_http/net_http_places.h"

enum net_http_soundness {
    NET_HTTP_UNTRIED, // before its first exchange, and after one of whose end there is a doubt
    NET_HTTP_UNSOUND, // in an exchange, and after one that has not ended well
    NET_HTTP_SOUND,   // after an exchange that was whole
};

struct net_http_connection {
    VALUE key;                       // the KeepAlive::Key
    VALUE io;                        // TCPSocket, Socket or SSLSocket
    VALUE awaiting;                  // see KeepAlive::Connection#awaiting
    VALUE retries;                   // max_retries that the session gets back when an answer begins
    VALUE response;                  // the response whose body the library itself has read to its end
    VALUE disguised;                 // the request whose implied "Connection: close" is not sent
    struct net_http_key values;      // those of the key
    double named_at;                 // monotonic seconds when its name was looked up
    double expires_at;               // when it must be closed; NAN: it has never rested
    struct net_http_offsets offsets; // when it began to rest
    unsigned forks;                  // forks_seen() when its session began
    enum net_http_soundness sound;
    bool bound;  // never kept, whatever follows
    bool looked; // nothing had come when the last request began, and nobody has used that yet
};

// A KeepAlive::Connection's struct.
struct net_http_connection *net_http_connection_get(VALUE connection);

// The KeepAlive::Connection of a BufferedIO, or nil; and its struct, or NULL.
VALUE net_http_connection_at(VALUE buffered);
struct net_http_connection *net_http_connection_of(VALUE buffered);
void net_http_connection_set(VALUE buffered, VALUE connection);

bool net_http_connection_expired(const struct net_http_connection *connection, double now);

// Looks at a socket without waiting. Consumes nothing. Returns true if it is open and has received nothing, neither
// bytes nor the end; nil if bytes have come over TLS, which may be a session ticket; otherwise false.
VALUE net_http_look(VALUE io);

// Defines the class's methods in C, and singleton methods of Library.
void net_http_connection_init(VALUE library_class);

#endif
