// The transport of a Net::BufferedIO: its socket, and @rbuf with its offset. Between two calls nothing is kept except
// Net::BufferedIO's own instance variables, so that code which reads or overrides them still works.
//
// Sockets are read and written with MSG_DONTWAIT under the GVL, which only a wait releases.
#ifndef HEDDLE_NET_HTTP_IO_H
#define HEDDLE_NET_HTTP_IO_H

#include "net_http/library.h"

enum { HTTP_RECORD = 16384 }; // stock's read size, and the size of a TLS record

struct net_http_io {
    VALUE self;
    VALUE rbuf; // @rbuf at the last check: compaction must not move bytes that are being parsed
    VALUE io;   // TCPSocket, Socket, UNIXSocket, or SSLSocket
    struct net_http_library *library;
    int descriptor;
    bool tls;
    uint8_t records; // TLS records read so far, counted until unpatched is checked
    bool bypasses;   // skip SSLSocket's read_nonblock in Ruby and call the C method that it calls
    bool inflated;   // the body will probably be inflated: one piece may become a thousand
    bool calling;    // inside the destination's code: its exceptions are not reading errors
    VALUE spare;     // a binary String for the next segment of a body, or nil
    // Who owns a segment after `<<`.
    enum { HTTP_UNDECIDED, HTTP_GIVEN, HTTP_LENT } segments;
    bool offsets; // net-protocol 0.2 and later: @rbuf_offset and @rbuf_empty beside @rbuf
};

struct net_http_pending {
    const uint8_t *at;
    size_t length;
};

// Returns false if stock must do this call, and counts that.
bool net_http_io_open(struct net_http_io *io, VALUE self);

// Call it after anything that may have run Ruby code: the socket may be closed, and its number may belong to another
// file. Raises IOError then.
void net_http_io_recheck(struct net_http_io *io);

// The unconsumed bytes of @rbuf; valid until the next call that may run Ruby code.
struct net_http_pending net_http_io_pending(struct net_http_io *io);
void net_http_io_consume(const struct net_http_io *io, size_t length);

// Waits for more bytes and receives them into @rbuf. `room`: the most to receive, unless @rbuf has more room already.
// Returns false at the end of the file. Raises Net::ReadTimeout and errors of reading.
bool net_http_io_fill(struct net_http_io *io, size_t room);

// Appends the next `length` bytes, or everything up to the end of the file (UINT64_MAX), to `destination` with <<.
// Returns false if the file ends first. Receives directly into a String; other destinations get new Strings.
bool net_http_io_read(struct net_http_io *io, uint64_t length, VALUE destination);

// Sends all strings. Returns the number of bytes. Raises Net::WriteTimeout and errors of writing.
size_t net_http_io_write(struct net_http_io *io, int count, const VALUE *strings);

// Returns whether the peer has closed the connection: 1 yes, 0 no, -1 unknown without waiting. Bytes that TLS returns
// meanwhile go to @rbuf.
int net_http_io_ended(struct net_http_io *io);

// Returns whether this side has closed a BufferedIO's socket; and whether nothing has come, neither data nor the end.
bool net_http_io_closed(VALUE self);
bool net_http_io_quiet(const struct net_http_io *io);

// Waits until the socket is ready for `events` of poll(2). Returns false when `timeout` seconds (or nil) are over.
bool net_http_io_wait(struct net_http_io *io, short events, VALUE timeout);

// Waits until the socket can be read or written. Raises Net::ReadTimeout or Net::WriteTimeout.
void net_http_io_wait_to_read(struct net_http_io *io, short events);
void net_http_io_wait_to_write(struct net_http_io *io, short events);

// The longest single wait for reading and for writing, in nanoseconds, and the errors raised after it.
int64_t net_http_io_read_span(const struct net_http_io *io);
int64_t net_http_io_write_span(const struct net_http_io *io);
RBIMPL_ATTR_NORETURN()
void net_http_io_read_timed_out(const struct net_http_io *io);
RBIMPL_ATTR_NORETURN()
void net_http_io_write_timed_out(const struct net_http_io *io);
RBIMPL_ATTR_NORETURN()
void net_http_raise_errno(int error);
RBIMPL_ATTR_NORETURN()
void net_http_raise_eof(void);

// Raises the library's error for the line in @rbuf, which is longer than the limit. Consumes nothing.
RBIMPL_ATTR_NORETURN()
void net_http_raise_long_line(const struct net_http_io *io, size_t limit);

// Call it after a transfer that did not wait: spends the budget (budget.h), and checks the socket again, which other
// code may have closed.
void net_http_io_use_budget(struct net_http_io *io, size_t bytes);

// Call it once the socket library is loaded.
void net_http_io_know_sockets(void);

#endif
