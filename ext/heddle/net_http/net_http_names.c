#include "net_http/net_http_names.h"

#define IV(name)          ID iv_##name;
#define NAME(name)        ID id_##name;
#define OTHER(name, text) ID name;
NET_HTTP_VARIABLES(IV)
NET_HTTP_METHODS(NAME)
NET_HTTP_OTHERS(OTHER)
#undef IV
#undef NAME
#undef OTHER

void net_http_names_init(void)
{
#define IV(name)          iv_##name = rb_intern("@" #name);
#define NAME(name)        id_##name = rb_intern(#name);
#define OTHER(name, text) name = rb_intern(text);
    NET_HTTP_VARIABLES(IV)
    NET_HTTP_METHODS(NAME)
    NET_HTTP_OTHERS(OTHER)
}
