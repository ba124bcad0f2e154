// Called once, when the extension is loaded. Each function defines the Ruby methods of one file of this layer.
#ifndef HEDDLE_NET_HTTP_BINDINGS_H
#define HEDDLE_NET_HTTP_BINDINGS_H

#include <ruby.h>

void Init_heddle_net_http_io(void);
void Init_heddle_net_http_tls(void);
void Init_heddle_net_http(void);

#endif
