#include "request.h"

#include <string.h>
#include <strings.h>

static bool token_char(unsigned char c)
{
    if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return true;
    return c != 0 && strchr("!#$%&'*+-.^_`|~", c) != NULL;
}

static bool same(const char *bytes, const char *end, const char *word)
{
    size_t length = strlen(word);
    return (size_t)(end - bytes) == length && strncasecmp(bytes, word, length) == 0;
}

/* The request line, without its CRLF. */
static enum request_result parse_line(const char *line, const char *end, struct request *request)
{
    const char *space = memchr(line, ' ', (size_t)(end - line));
    if (!space || space == line) return REQUEST_BAD;
    for (const char *c = line; c < space; c++) {
        if (!token_char((unsigned char)*c)) return REQUEST_BAD;
    }
    request->get = space - line == 3 && memcmp(line, "GET", 3) == 0;
    request->head = space - line == 4 && memcmp(line, "HEAD", 4) == 0;
    request->post =
        (space - line == 4 && memcmp(line, "POST", 4) == 0) || (space - line == 3 && memcmp(line, "PUT", 3) == 0);

    const char *target = space + 1;
    space = memchr(target, ' ', (size_t)(end - target));
    if (!space || space == target) return REQUEST_BAD;
    for (const char *c = target; c < space; c++) {
        if ((unsigned char)*c <= ' ' || *c == 0x7f) return REQUEST_BAD;
    }

    const char *version = space + 1;
    if (end - version != 8 || memcmp(version, "HTTP/", 5) != 0 || version[6] != '.') return REQUEST_BAD;
    if (version[5] != '1' || (version[7] != '0' && version[7] != '1')) return REQUEST_VERSION;
    request->minor = version[7] == '1';
    request->keep_alive = request->minor;

    const char *target_end = space;
    if (target_end - target > 7 && strncasecmp(target, "http://", 7) == 0) { /* absolute form, as to a proxy */
        target += 7;
        while (target < target_end && *target != '/')
            target++;
    }
    const char *query = memchr(target, '?', (size_t)(target_end - target));
    request->path = target;
    request->path_length = (size_t)((query ? query : target_end) - target);
    return REQUEST_DONE;
}

static void read_connection(const char *value, const char *end, struct request *request)
{
    while (value < end) {
        const char *comma = memchr(value, ',', (size_t)(end - value));
        const char *stop = comma ? comma : end, *next = comma ? comma + 1 : end;
        while (value < stop && (*value == ' ' || *value == '\t'))
            value++;
        while (stop > value && (stop[-1] == ' ' || stop[-1] == '\t'))
            stop--;
        if (same(value, stop, "close")) request->keep_alive = false;
        if (same(value, stop, "keep-alive") && !request->minor) request->keep_alive = true;
        value = next;
    }
}

/* RFC 9112 6.3: two different lengths, or a length that is not a number, are an attack. */
static enum request_result read_length(const char *value, const char *end, struct request *request, bool *length)
{
    uint64_t number = 0;
    if (value == end || end - value > 15) return REQUEST_BAD;
    for (; value < end; value++) {
        if (*value < '0' || *value > '9') return REQUEST_BAD;
        number = number * 10 + (uint64_t)(*value - '0');
    }
    if (*length && number != request->content_length) return REQUEST_BAD;
    *length = true;
    request->content_length = number;
    if (number > 0) request->body = true;
    return REQUEST_DONE;
}

/* Headers that may occur at most once. */
struct found {
    bool host, length;
};

/* One header line, without its CRLF. */
static enum request_result parse_header(const char *line, const char *end, struct request *request, struct found *found)
{
    const char *colon = memchr(line, ':', (size_t)(end - line));
    if (!colon || colon == line) return REQUEST_BAD;
    for (const char *c = line; c < colon; c++) {
        if (!token_char((unsigned char)*c)) return REQUEST_BAD;
    }
    const char *value = colon + 1;
    while (value < end && (*value == ' ' || *value == '\t'))
        value++;
    while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    for (const char *c = value; c < end; c++) {
        if (((unsigned char)*c < ' ' && *c != '\t') || *c == 0x7f) return REQUEST_BAD;
    }

    if (same(line, colon, "Host")) found->host = true;
    if (same(line, colon, "Connection")) read_connection(value, end, request);
    if (same(line, colon, "Expect") && same(value, end, "100-continue")) request->expect = true;
    if (same(line, colon, "Content-Length")) return read_length(value, end, request, &found->length);
    if (same(line, colon, "Transfer-Encoding")) {
        if (!same(value, end, "chunked")) return REQUEST_BAD; /* no other coding is known here */
        request->body = request->chunked = true;
    }
    return REQUEST_DONE;
}

enum request_result request_parse(const char *bytes, const char *end, struct request *request)
{
    const char *at = bytes;
    struct found found = {0};
    bool first = true;

    *request = (struct request){0};
    while (end - at >= 2 && at[0] == '\r' && at[1] == '\n')
        at += 2; /* RFC 9112 2.2: empty lines before the request */

    for (;;) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        if (!newline) return end - bytes >= REQUEST_HEAD_LIMIT ? REQUEST_TOO_LARGE : REQUEST_MORE;
        if (newline + 1 - bytes > REQUEST_HEAD_LIMIT) return REQUEST_TOO_LARGE;
        if (newline == at || newline[-1] != '\r') return REQUEST_BAD;

        const char *line_end = newline - 1;
        if (line_end == at && !first) {
            request->length = (size_t)(newline + 1 - bytes);
            if (request->chunked && found.length) return REQUEST_BAD;
            return request->minor && !found.host ? REQUEST_BAD : REQUEST_DONE;
        }
        enum request_result result =
            first ? parse_line(at, line_end, request) : parse_header(at, line_end, request, &found);
        if (result != REQUEST_DONE) return result;
        first = false;
        at = newline + 1;
    }
}
