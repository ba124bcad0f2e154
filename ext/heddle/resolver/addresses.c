#include "resolver/addresses.h"

#include <arpa/inet.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static bool holds(const struct addresses *addresses, const struct addrinfo *address)
{
    for (size_t i = 0; i < addresses->count; i++) {
        const struct socket_address *other = &addresses->list[i];
        if (other->length == address->ai_addrlen && memcmp(&other->any, address->ai_addr, other->length) == 0)
            return true;
    }
    return false;
}

static bool usable(const struct addrinfo *address)
{
    return (address->ai_family == AF_INET && address->ai_addrlen == sizeof(struct sockaddr_in)) ||
           (address->ai_family == AF_INET6 && address->ai_addrlen == sizeof(struct sockaddr_in6));
}

struct addresses *addresses_of(const struct addrinfo *found)
{
    size_t most = 0;
    for (const struct addrinfo *address = found; address; address = address->ai_next)
        most++;
    struct addresses *addresses = calloc(1, sizeof(*addresses) + most * sizeof(struct socket_address));
    if (!addresses) return NULL;
    for (const struct addrinfo *address = found; address; address = address->ai_next) {
        if (!usable(address) || holds(addresses, address)) continue;
        struct socket_address *copy = &addresses->list[addresses->count++];
        copy->length = address->ai_addrlen;
        memcpy(&copy->any, address->ai_addr, address->ai_addrlen);
    }
    return addresses;
}

// The common notations. getaddrinfo takes 3 KiB of stack, a page that each fiber waiting to connect would then keep.
static struct addresses *plain_numeric(const char *host)
{
    struct socket_address address;
    memset(&address, 0, sizeof(address));
    if (inet_pton(AF_INET, host, &address.ipv4.sin_addr) == 1) {
        address.ipv4.sin_family = AF_INET;
        address.length = sizeof(address.ipv4);
    } else if (inet_pton(AF_INET6, host, &address.ipv6.sin6_addr) == 1) {
        address.ipv6.sin6_family = AF_INET6;
        address.length = sizeof(address.ipv6);
    } else {
        return NULL;
    }
    struct addresses *addresses = calloc(1, sizeof(*addresses) + sizeof(address));
    if (!addresses) return NULL;
    addresses->count = 1;
    addresses->list[0] = address;
    return addresses;
}

struct addresses *addresses_numeric(const char *host)
{
    // A host name ends in a label that is not a number, so most names contain a letter beyond f; none contains a colon.
    if (!strpbrk(host, ":") && host[strspn(host, "0123456789abcdefABCDEFxX.")] != '\0') return NULL;
    struct addresses *plain = plain_numeric(host);
    if (plain) return plain;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST}, *found;
    if (getaddrinfo(host, NULL, &hints, &found) != 0) return NULL;
    struct addresses *addresses = addresses_of(found);
    freeaddrinfo(found);
    return addresses;
}

void address_set_port(struct socket_address *address, uint16_t port)
{
    if (address->any.sa_family == AF_INET6) {
        address->ipv6.sin6_port = htons(port);
    } else {
        address->ipv4.sin_port = htons(port);
    }
}

void address_text(const struct socket_address *address, char *text)
{
    if (getnameinfo(&address->any, address->length, text, NI_MAXHOST, NULL, 0, NI_NUMERICHOST) != 0) text[0] = '\0';
}
