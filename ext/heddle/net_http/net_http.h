// Heddle::NetHTTP: Net::HTTP with less work, under callers that do not know of it. lib/heddle/net_http.rb decides where
// it is put in place.
#ifndef HEDDLE_NET_HTTP_H
#define HEDDLE_NET_HTTP_H

#include "heddle.h"

void Init_heddle_net_http(void);

#endif
