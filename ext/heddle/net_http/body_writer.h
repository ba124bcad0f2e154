// Reads a body to a destination other than a String: a block, a file, a StringIO, or any object with <<.
#ifndef HEDDLE_NET_HTTP_BODY_WRITER_H
#define HEDDLE_NET_HTTP_BODY_WRITER_H

#include "net_http/io.h"

// Passes the next `length` bytes, or all up to the end of the file (UINT64_MAX), to `destination` with <<, in segments.
// Returns false if the file ended before. Decides once for an `io` who owns a segment after <<.
bool net_http_body_writer_read(struct net_http_io *io, uint64_t length, VALUE destination);

#endif
