// Addresses of a host, as a look-up returns them and a connect takes them.
#ifndef HEDDLE_RESOLVER_ADDRESSES_H
#define HEDDLE_RESOLVER_ADDRESSES_H

#include <netdb.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

struct socket_address {
    socklen_t length;
    union {
        struct sockaddr any;
        struct sockaddr_in ipv4;
        struct sockaddr_in6 ipv6;
    };
};

struct addresses {
    size_t count;
    struct socket_address list[];
};

// Copies the IPv4 and IPv6 addresses with malloc, each address once. NULL without memory.
struct addresses *addresses_of(const struct addrinfo *found);

// The address of a host that is an address itself (also with a scope: fe80::1%eth0), without a look-up. NULL for a
// name, or without memory.
struct addresses *addresses_numeric(const char *host);

void address_set_port(struct socket_address *address, uint16_t port);

// Writes the numeric address, with its scope if it has one, into NI_MAXHOST bytes.
void address_text(const struct socket_address *address, char *text);

#endif
