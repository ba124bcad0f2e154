#include "os/peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

union name {
    struct sockaddr any;
    struct sockaddr_in ipv4;
    struct sockaddr_in6 ipv6;
    struct sockaddr_un unix_path;
};

static VALUE path_of(const struct sockaddr_un *address, socklen_t length)
{
    size_t before = offsetof(struct sockaddr_un, sun_path);
    if (length <= before || !address->sun_path[0]) return Qnil; // a pair, or a name of Linux's without a file
    return rb_utf8_str_new(address->sun_path, (long)strnlen(address->sun_path, length - before));
}

VALUE peer_name(int descriptor)
{
    union name name;
    char text[INET6_ADDRSTRLEN];
    socklen_t length = sizeof(name);
    if (getpeername(descriptor, &name.any, &length) != 0) return Qnil;
    switch (name.any.sa_family) {
    case AF_INET:
        inet_ntop(AF_INET, &name.ipv4.sin_addr, text, sizeof(text));
        return rb_sprintf("%s:%d", text, ntohs(name.ipv4.sin_port));
    case AF_INET6:
        inet_ntop(AF_INET6, &name.ipv6.sin6_addr, text, sizeof(text));
        return rb_sprintf("[%s]:%d", text, ntohs(name.ipv6.sin6_port));
    case AF_UNIX: return path_of(&name.unix_path, length);
    default: return Qnil;
    }
}
