/* The address of the server behind the proxy. */
#include "proxy.h"

#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

static const char *parse_path(struct upstream *upstream, const char *path)
{
    struct sockaddr_un *address = (struct sockaddr_un *)&upstream->addresses[0].address;
    if (!*path) return "unix: needs a path";
    if (strlen(path) >= sizeof address->sun_path) return "the path of a UNIX socket can have at most 107 bytes";
    address->sun_family = AF_UNIX;
    strcpy(address->sun_path, path);
    upstream->addresses[0].length = sizeof *address;
    upstream->count = 1;
    return NULL;
}

const char *upstream_parse(struct upstream *upstream, const char *name)
{
    char host[256];
    const char *colon = strrchr(name, ':');
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *found;

    *upstream = (struct upstream){.name = name};
    if (strncmp(name, "unix:", 5) == 0) return parse_path(upstream, name + 5);
    if (!colon || !colon[1] || colon == name) return "--proxy takes HOST:PORT or unix:PATH";

    size_t length = (size_t)(colon - name);
    if (name[0] == '[' && colon[-1] == ']') {
        name++;
        length -= 2;
    }
    if (length >= sizeof host) return "the host name is too long";
    memcpy(host, name, length);
    host[length] = 0;

    int error = getaddrinfo(host, colon + 1, &hints, &found);
    if (error) return gai_strerror(error);
    for (struct addrinfo *next = found; next && upstream->count < UPSTREAM_ADDRESSES; next = next->ai_next) {
        struct upstream_address *address = &upstream->addresses[upstream->count++];
        memcpy(&address->address, next->ai_addr, next->ai_addrlen);
        address->length = next->ai_addrlen;
    }
    freeaddrinfo(found);
    return NULL;
}
