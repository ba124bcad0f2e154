// A request's body that is read from something (body_stream). A file goes to the socket inside the kernel; what has a method
// `readpartial` or `read` is asked for large pieces, where IO.copy_stream, which stock uses, asks for 16 KiB.
#ifndef HEDDLE_NET_HTTP_NET_HTTP_UPLOAD_H
#define HEDDLE_NET_HTTP_NET_HTTP_UPLOAD_H

#include "net_http/net_http_io.h"

// Where the bytes of a body come from.
struct net_http_source {
    VALUE object;
    bool file;    // a regular one, from where it is now to its end
    bool string;  // a StringIO
    bool partial; // has readpartial, which returns what is there
};

// False: what it is only IO.copy_stream can judge. May run Ruby code, and raises what reading a closed or write-only IO does.
bool net_http_source_of(VALUE stream, struct net_http_source *source);

// Sends all that there is. Raises Net::WriteTimeout, and whatever reading and writing raise.
void net_http_upload(struct net_http_io *io, const struct net_http_source *source, bool chunked);

#endif
