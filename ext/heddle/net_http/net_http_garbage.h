// What bodies leave to the GC and to malloc: few Strings, and large ones.
#ifndef HEDDLE_NET_HTTP_NET_HTTP_GARBAGE_H
#define HEDDLE_NET_HTTP_NET_HTTP_GARBAGE_H

#include "heddle.h"

// So many bytes of a body are given away in a String of their own, of which nobody knows how long it lives. May end a collection that is
// under way, which moves nothing that is on the stack; runs no Ruby code.
void net_http_given(size_t length);

#endif
