// Where a body goes to that is read to something else than a String or a block.
#ifndef HEDDLE_NET_HTTP_NET_HTTP_SINK_H
#define HEDDLE_NET_HTTP_NET_HTTP_SINK_H

#include "heddle.h"

// Whether the object's << has taken the bytes when it returns, so that the String may be used again: that of IOs, StringIOs and
// Tempfiles on which no program has put a method of its own.
bool net_http_takes_at_once(VALUE destination);

#endif
