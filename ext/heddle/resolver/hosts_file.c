#include "resolver/hosts_file.h"

#include "resolver/resolver.h"
#include "portable.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LARGEST = 65536 }; // bytes: parsing a larger file takes longer than asking a thread

// A file that is read again when it has changed.
struct watched {
    const char *path;
    struct stat seen;
    bool known; // `seen` is valid, …
    char *text; // … and this is the text from then; NULL if the file could not be read
};

static struct watched hosts = {.path = "/etc/hosts"}, nsswitch = {.path = "/etc/nsswitch.conf"};

static bool hosts_file_same(const struct stat *one, const struct stat *other)
{
    return one->st_dev == other->st_dev && one->st_ino == other->st_ino && one->st_size == other->st_size &&
           portable_same_mtime(one, other);
}

static char *read_whole(const char *path, size_t size)
{
    char *text = malloc(size + 1);
    int descriptor = text ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (descriptor < 0) {
        free(text);
        return NULL;
    }
    size_t length = 0;
    while (length < size) {
        ssize_t count = read(descriptor, text + length, size - length);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) break; // the file may be shorter now than its size was
        length += (size_t)count;
    }
    close(descriptor);
    text[length] = '\0';
    return text;
}

// The text, or NULL.
static const char *contents(struct watched *file)
{
    struct stat now;
    if (stat(file->path, &now) < 0 || !S_ISREG(now.st_mode)) {
        file->known = false;
        return NULL;
    }
    if (file->known && hosts_file_same(&now, &file->seen)) return file->text;
    free(file->text);
    file->text = now.st_size <= LARGEST ? read_whole(file->path, (size_t)now.st_size) : NULL;
    file->seen = now;
    file->known = file->text || now.st_size > LARGEST; // otherwise descriptors or memory were short: try again
    return file->text;
}

static const char *skip_blanks(const char *at)
{
    while (*at == ' ' || *at == '\t')
        at++;
    return at;
}

static const char *word_end(const char *at)
{
    while (*at && !isspace((unsigned char)*at) && *at != '#')
        at++;
    return at;
}

static const char *hosts_file_next_line(const char *at)
{
    at += strcspn(at, "\n");
    return *at ? at + 1 : at;
}

static bool word_is(const char *from, const char *to, const char *word)
{
    return (size_t)(to - from) == strlen(word) && strncasecmp(from, word, (size_t)(to - from)) == 0;
}

// Returns whether nsswitch.conf asks the hosts file first, and accepts its answer as final.
static bool asked_first(const char *text)
{
    for (const char *line = text; *line; line = hosts_file_next_line(line)) {
        const char *at = skip_blanks(line);
        if (strncmp(at, "hosts:", 6) != 0) continue;
        at = skip_blanks(at + 6);
        const char *end = word_end(at);
        if (!word_is(at, end, "files")) return false;
        at = skip_blanks(end);
        return *at != '[' || !strstr(at, "SUCCESS"); // an action on success, such as merging
    }
    return false;
}

static bool parse_address(const char *from, const char *to, struct socket_address *address)
{
    char text[INET6_ADDRSTRLEN];
    if ((size_t)(to - from) >= sizeof(text)) return false;
    memcpy(text, from, (size_t)(to - from));
    text[to - from] = '\0';
    *address = (struct socket_address){.length = sizeof(address->ipv4)};
    address->ipv4.sin_family = AF_INET;
    if (inet_pton(AF_INET, text, &address->ipv4.sin_addr) == 1) return true;
    *address = (struct socket_address){.length = sizeof(address->ipv6)};
    address->ipv6.sin6_family = AF_INET6;
    return inet_pton(AF_INET6, text, &address->ipv6.sin6_addr) == 1;
}

static bool line_names(const char *at, const char *name)
{
    for (at = skip_blanks(at); *at && *at != '\n' && *at != '#'; at = skip_blanks(at)) {
        const char *end = word_end(at);
        if (end == at) break; // \r and similar
        if (word_is(at, end, name)) return true;
        at = end;
    }
    return false;
}

enum { MOST = 64 };

// Appends the addresses of one family to those already found.
static size_t collect(const char *text, const char *name, int family, struct socket_address *found, size_t count)
{
    for (const char *line = text; *line && count < MOST; line = hosts_file_next_line(line)) {
        const char *at = skip_blanks(line), *end = word_end(at);
        struct socket_address address;
        if (end == at || !line_names(end, name) || !parse_address(at, end, &address)) continue;
        if (address.any.sa_family != family) continue;
        bool known = false;
        for (size_t i = 0; i < count; i++)
            known |= memcmp(&found[i], &address, sizeof(address)) == 0;
        if (!known) found[count++] = address;
    }
    return count;
}

struct addresses *hosts_file_addresses(const char *name)
{
    if (resolver_simulated()) return NULL;
    const char *order = contents(&nsswitch);
    if (!order || !asked_first(order)) return NULL;
    const char *text = contents(&hosts);
    if (!text) return NULL;
    struct socket_address found[MOST];
    size_t count = collect(text, name, AF_INET6, found, 0);
    count = collect(text, name, AF_INET, found, count);
    if (count == 0) return NULL;
    struct addresses *addresses = malloc(sizeof(*addresses) + count * sizeof(found[0]));
    if (!addresses) return NULL;
    addresses->count = count;
    memcpy(addresses->list, found, count * sizeof(found[0]));
    return addresses;
}
