// Addresses of a host, as a look-up finds them and a connect takes them.
#ifndef HEDDLE_NAMES_ADDRESSES_H
#define HEDDLE_NAMES_ADDRESSES_H

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

// A copy from malloc, each address once, without what is neither IPv4 nor IPv6. NULL without memory.
struct addresses *addresses_of(const struct addrinfo *found);

// Of a host that is an address itself (also with a scope: fe80::1%eth0), without asking anybody; NULL when it is not, or
// without memory.
struct addresses *addresses_numeric(const char *host);

void address_set_port(struct socket_address *address, uint16_t port);

// The number, with its scope if it has one, into NI_MAXHOST bytes.
void address_text(const struct socket_address *address, char *text);

#endif
