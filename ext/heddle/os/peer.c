#include "os/peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

union address {
    struct sockaddr any;
    struct sockaddr_in ipv4;
    struct sockaddr_in6 ipv6;
    struct sockaddr_un local;
};

bool peer_text(int descriptor, char name[PEER_NAME])
{
    union address address;
    char host[INET6_ADDRSTRLEN];
    socklen_t length = sizeof(address);
    name[0] = 0;
    if (getpeername(descriptor, &address.any, &length) != 0) return false;
    switch (address.any.sa_family) {
    case AF_INET:
        inet_ntop(AF_INET, &address.ipv4.sin_addr, host, sizeof(host));
        snprintf(name, PEER_NAME, "%s:%d", host, ntohs(address.ipv4.sin_port));
        break;
    case AF_INET6:
        inet_ntop(AF_INET6, &address.ipv6.sin6_addr, host, sizeof(host));
        snprintf(name, PEER_NAME, "[%s]:%d", host, ntohs(address.ipv6.sin6_port));
        break;
    case AF_UNIX: { // a pair, and a name of Linux's without a file, have no path
        size_t before = offsetof(struct sockaddr_un, sun_path), path = length > before ? length - before : 0;
        snprintf(name, PEER_NAME, "%.*s", (int)path, address.local.sun_path);
        break;
    }
    default: break;
    }
    return name[0];
}

VALUE peer_name(int descriptor)
{
    char name[PEER_NAME];
    return peer_text(descriptor, name) ? rb_utf8_str_new_cstr(name) : Qnil;
}
