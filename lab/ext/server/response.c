#include "response.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const uint64_t LONGEST_DELAY = 3600000;          /* ms */
static const uint64_t LARGEST_BODY = UINT64_C(1) << 40; /* bytes */

char response_pattern[PATTERN_SIZE];

void response_make_pattern(void)
{
    static const char digits[] = "0123456789abcdef";
    for (uint32_t offset = 0; offset < PATTERN_SIZE; offset += 16) {
        uint32_t rest = offset;
        for (int i = 14; i >= 0; i--, rest >>= 4)
            response_pattern[offset + (uint32_t)i] = digits[rest & 15];
        response_pattern[offset + 15] = '\n';
    }
}

/* Decimal digits alone, no more than `most`. */
static bool read_number(const char *digits, size_t length, uint64_t most, uint64_t *number)
{
    if (length == 0 || length > 13) return false;
    *number = 0;
    for (size_t i = 0; i < length; i++) {
        if (digits[i] < '0' || digits[i] > '9') return false;
        *number = *number * 10 + (uint64_t)(digits[i] - '0');
    }
    return *number <= most;
}

static void append(struct response *response, const char *text, size_t length)
{
    memcpy(response->bytes + response->length, text, length); /* callers keep a head and a text below 1024 bytes */
    response->length += length;
}

static void write_head(struct response *response, const char *status, uint64_t length, const char *extra, bool minor)
{
    const char *connection = "";
    if (!response->keep_alive) {
        connection = "Connection: close\r\n";
    } else if (!minor) {
        connection = "Connection: keep-alive\r\n";
    }
    response->length =
        (size_t)snprintf(response->bytes, sizeof response->bytes,
                         "HTTP/1.1 %s\r\nContent-Length: %" PRIu64 "\r\n%s%s\r\n", status, length, connection, extra);
}

static void text_response(struct response *response, const struct request *request, const char *status,
                          const char *extra, const char *text, size_t length)
{
    write_head(response, status, length, extra, request->minor);
    if (!request->head) append(response, text, length);
}

static void refuse(struct response *response, const struct request *request, const char *status, const char *extra,
                   const char *text, struct stats *stats)
{
    stats->refused++;
    text_response(response, request, status, extra, text, strlen(text));
}

void response_for(struct response *response, const struct request *request, struct stats *stats)
{
    const char *path = request->path;
    size_t length = request->path_length;
    uint64_t number;

    response->delay = response->pattern = 0;
    response->keep_alive = request->keep_alive;
    response->drain = false;

    if (request->body) {
        response->keep_alive = false; /* what follows is not a request */
        response->drain = true;
        refuse(response, request, "413 Content Too Large", "", "this server takes no request bodies\n", stats);
    } else if (!request->get && !request->head) {
        refuse(response, request, "405 Method Not Allowed", "Allow: GET, HEAD\r\n",
               "this server answers GET and HEAD\n", stats);
    } else if (length > 1 && path[0] == '/' && read_number(path + 1, length - 1, LONGEST_DELAY, &number)) {
        response->delay = number * 1000000;
        text_response(response, request, "200 OK", "", "done", 4);
    } else if (length > 3 && memcmp(path, "/b/", 3) == 0 && read_number(path + 3, length - 3, LARGEST_BODY, &number)) {
        write_head(response, "200 OK", number, "", request->minor);
        if (!request->head) response->pattern = number;
    } else if (length == 6 && memcmp(path, "/stats", 6) == 0) {
        char json[512];
        size_t size = stats_json(stats, json, sizeof json);
        text_response(response, request, "200 OK", "Content-Type: application/json\r\n", json, size);
    } else {
        refuse(response, request, "404 Not Found", "",
               "GET /MS answers after MS milliseconds (at most 3600000), GET /b/BYTES with a body of that many bytes "
               "(at most 1099511627776), GET /stats with counts as JSON\n",
               stats);
    }
}

void response_refuse(struct response *response, enum request_result result, struct stats *stats)
{
    static const struct request unknown = {.minor = true};
    response->delay = response->pattern = 0;
    response->keep_alive = false;
    response->drain = true;
    if (result == REQUEST_TOO_LARGE) {
        refuse(response, &unknown, "431 Request Header Fields Too Large", "", "a head has at most 8192 bytes\n", stats);
    } else if (result == REQUEST_VERSION) {
        refuse(response, &unknown, "505 HTTP Version Not Supported", "", "this server speaks HTTP/1.0 and 1.1\n",
               stats);
    } else {
        refuse(response, &unknown, "400 Bad Request", "", "not an HTTP/1.x request\n", stats);
    }
}
