// Sends a request's body from a body_stream. A file goes to the socket inside the kernel. A source with `readpartial`
// or `read` is asked for large pieces; IO.copy_stream, which stock uses, asks for 16 KiB.
#ifndef HEDDLE_NET_HTTP_UPLOAD_H
#define HEDDLE_NET_HTTP_UPLOAD_H

#include "net_http/io.h"

// The source of a body's bytes.
struct net_http_source {
    VALUE object;
    bool file;    // a regular file, read from its current position
    bool string;  // a StringIO
    bool partial; // has readpartial, which returns the available bytes
};

// Describes the source. Returns false if only IO.copy_stream can interpret it. May run Ruby code, and raises the errors
// of reading from a closed or write-only IO.
bool net_http_source_of(VALUE stream, struct net_http_source *source);

// Sends the whole source. Raises Net::WriteTimeout, and errors of reading and writing.
void net_http_upload(struct net_http_io *io, const struct net_http_source *source, bool chunked);

#endif
