// The transport of a Net::BufferedIO: its socket, and @rbuf with what belongs to it. Nothing is kept between two calls but
// Net::BufferedIO's own instance variables, so that code which reads or overrides them goes on working.
//
// Sockets are read and written with MSG_DONTWAIT under the GVL, which is let go of only to wait.
#ifndef HEDDLE_NET_HTTP_NET_HTTP_IO_H
#define HEDDLE_NET_HTTP_NET_HTTP_IO_H

#include "net_http/net_http_library.h"

enum {
    HTTP_RECORD = 16384,            // what stock receives at once, and a record of TLS
    HTTP_LARGEST_RESERVE = 16 << 20 // what may be reserved beyond what has arrived
};

struct net_http_io {
    VALUE self;
    VALUE rbuf; // @rbuf when it was looked at last: compaction must not move bytes that are being parsed
    VALUE io;   // TCPSocket, Socket, UNIXSocket, or SSLSocket
    struct net_http_library *library;
    int descriptor;
    bool tls;
    uint8_t records; // how many were asked for, up to as many as it takes to look at SSLSocket's methods
    bool passes_by;  // the one in Ruby, and calls the one in C that it calls
    bool inflated;   // the body, as far as is known, before it gets to its reader: a piece of it may become a thousand
    bool calling;    // the destination of a body: what is raised is its error
    VALUE spare;     // a binary String for the next segment of a body, or nil
    // Whose segments are once the destination has taken them.
    enum { HTTP_UNJUDGED, HTTP_GIVEN, HTTP_LENT } segments;
    bool offsets; // net-protocol 0.2 and later: @rbuf_offset and @rbuf_empty beside @rbuf
};

struct net_http_pending {
    const uint8_t *at;
    size_t length;
};

// False: this call is for stock, and has been counted.
bool net_http_io_open(struct net_http_io *io, VALUE self);

// After anything that may have run Ruby code: the socket may be closed, and its number be another's. Raises IOError then.
void net_http_io_look_again(struct net_http_io *io);

// What @rbuf holds and was not consumed. Until the next call that may run Ruby code.
struct net_http_pending net_http_io_pending(struct net_http_io *io);
void net_http_io_consume(const struct net_http_io *io, size_t length);

// Waits for more and receives it into @rbuf; `room`: how much at most, if there is no more room in it already. False at
// the end of the file. Raises Net::ReadTimeout and whatever reading raises.
bool net_http_io_fill(struct net_http_io *io, size_t room);

// The next `length` bytes, or all up to the end of the file (UINT64_MAX), to `destination` with <<. False when the file
// ended before. A String is received into; others are given Strings of their own.
bool net_http_io_read(struct net_http_io *io, uint64_t length, VALUE destination);

// Sends all strings. Returns how many bytes that was. Raises Net::WriteTimeout and whatever writing raises.
size_t net_http_io_write(struct net_http_io *io, int count, const VALUE *strings);

// Whether the peer has closed, as far as is known now; 1 yes, 0 no, -1: nothing is known without waiting. Bytes that
// TLS gives up meanwhile go to @rbuf.
int net_http_io_ended(struct net_http_io *io);

// Whether the socket of a BufferedIO was closed here, and whether nothing at all has come: neither data nor the end.
bool net_http_io_closed(VALUE self);
bool net_http_io_quiet(const struct net_http_io *io);

// Gives back the memory that a String has reserved and does not need.
void net_http_trim(VALUE string);

// Until ready for `events` of poll(2). False when `timeout` seconds (or nil) are over first.
bool net_http_io_wait(struct net_http_io *io, short events, VALUE timeout);

// Until the socket can be read from, or written to. Raises Net::ReadTimeout, Net::WriteTimeout.
void net_http_io_wait_to_read(struct net_http_io *io, short events);
void net_http_io_wait_to_write(struct net_http_io *io, short events);

// How long reading and writing may wait each time, in nanoseconds, and what is raised then.
int64_t net_http_io_read_span(const struct net_http_io *io);
int64_t net_http_io_write_span(const struct net_http_io *io);
RBIMPL_ATTR_NORETURN()
void net_http_io_read_timed_out(const struct net_http_io *io);
RBIMPL_ATTR_NORETURN()
void net_http_io_write_timed_out(const struct net_http_io *io);
RBIMPL_ATTR_NORETURN()
void net_http_raise_errno(int error);

// Has room for `room` bytes behind what is in the String; says that `count` bytes were put there.
void net_http_make_room(VALUE string, size_t room);
void net_http_add_length(VALUE string, size_t count);

// After a transfer that did not wait: spends the budget (budget.h), and looks at the socket again, which others may have closed.
void net_http_io_use_budget(struct net_http_io *io, size_t bytes);

// Once the socket library is loaded.
void net_http_io_know_sockets(void);

#endif
