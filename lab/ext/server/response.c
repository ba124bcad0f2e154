#include "response.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const uint64_t LONGEST_DELAY = 3600000;          /* ms */
static const uint64_t LARGEST_BODY = UINT64_C(1) << 40; /* bytes */

/* Reads decimal digits only, a number of at most `most`. */
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

/* `framing`: the header that defines the body's end. */
static void write_head_framed(struct response *response, const char *status, const char *framing, const char *extra,
                              bool minor)
{
    const char *connection = "";
    if (!response->keep_alive) {
        connection = "Connection: close\r\n";
    } else if (!minor) {
        connection = "Connection: keep-alive\r\n";
    }
    response->length = (size_t)snprintf(response->bytes, sizeof response->bytes, "HTTP/1.1 %s\r\n%s\r\n%s%s\r\n",
                                        status, framing, connection, extra);
}

static void write_head(struct response *response, const char *status, uint64_t length, const char *extra, bool minor)
{
    char framing[64];
    snprintf(framing, sizeof framing, "Content-Length: %" PRIu64, length);
    write_head_framed(response, status, framing, extra, minor);
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

/* Parses PREFIX and a number, as in /b/100. */
static bool has_number(const struct request *request, const char *prefix, uint64_t most, uint64_t *number)
{
    size_t length = strlen(prefix);
    return request->path_length > length && memcmp(request->path, prefix, length) == 0 &&
           read_number(request->path + length, request->path_length - length, most, number);
}

static bool path_is(const struct request *request, const char *path)
{
    return request->path_length == strlen(path) && memcmp(request->path, path, request->path_length) == 0;
}

bool response_wants_upload(const struct request *request)
{
    return request->post && path_is(request, "/u");
}

static void answer(struct response *response, const struct request *request, struct stats *stats)
{
    uint64_t number;

    if (has_number(request, "/", LONGEST_DELAY, &number)) {
        response->delay = number * 1000000;
        text_response(response, request, "200 OK", "", "done", 4);
    } else if (has_number(request, "/b/", LARGEST_BODY, &number) ||
               (!request->minor && has_number(request, "/c/", LARGEST_BODY, &number))) { /* HTTP/1.0 has no chunks */
        write_head(response, "200 OK", number, "", request->minor);
        body_plain(&response->body, number);
    } else if (has_number(request, "/c/", LARGEST_BODY, &number)) {
        write_head_framed(response, "200 OK", "Transfer-Encoding: chunked", "", request->minor);
        body_chunked(&response->body, number);
    } else if (has_number(request, "/z/", BODY_LARGEST_GZIP, &number)) {
        body_gzip(&response->body, number);
        write_head(response, "200 OK", response->body.length, "Content-Encoding: gzip\r\n", request->minor);
    } else if (path_is(request, "/stats")) {
        char json[512];
        size_t size = stats_json(stats, json, sizeof json);
        text_response(response, request, "200 OK", "Content-Type: application/json\r\n", json, size);
    } else {
        refuse(response, request, "404 Not Found", "",
               "GET /MS answers after MS milliseconds (at most 3600000), GET /b/BYTES with a body of that many bytes "
               "(at most 1099511627776), /c/BYTES with the same in chunks, /z/BYTES (at most 4294967295) compressed "
               "by gzip; POST or PUT /u takes a body; GET /stats with counts as JSON\n",
               stats);
    }
    if (request->head) body_none(&response->body);
}

static void begin(struct response *response, bool keep_alive, bool drain)
{
    response->delay = 0;
    response->keep_alive = keep_alive;
    response->drain = drain;
    body_none(&response->body);
}

void response_for(struct response *response, const struct request *request, struct stats *stats)
{
    begin(response, request->keep_alive, false);
    if (request->body) {
        response->keep_alive = false; /* the next bytes are not a request */
        response->drain = true;
        refuse(response, request, "413 Content Too Large", "", "only POST and PUT /u take a body\n", stats);
    } else if (!request->get && !request->head) {
        refuse(response, request, "405 Method Not Allowed", "Allow: GET, HEAD\r\n",
               "this server answers GET and HEAD, and POST and PUT of /u\n", stats);
    } else {
        answer(response, request, stats);
    }
}

void response_to_upload(struct response *response, const struct upload *upload, bool whole, struct stats *stats)
{
    const struct request request = {.minor = upload->minor};
    char json[128];

    begin(response, upload->keep_alive && whole, !whole);
    if (!whole) {
        refuse(response, &request, "400 Bad Request", "", "the body is not valid chunked encoding\n", stats);
        return;
    }
    int length = snprintf(json, sizeof json, "{\"bytes\":%" PRIu64 ",\"right\":%s}\n", upload->received,
                          upload->right ? "true" : "false");
    text_response(response, &request, "200 OK", "Content-Type: application/json\r\n", json, (size_t)length);
}

void response_refuse(struct response *response, enum request_result result, struct stats *stats)
{
    static const struct request unknown = {.minor = true};
    begin(response, false, true);
    if (result == REQUEST_TOO_LARGE) {
        refuse(response, &unknown, "431 Request Header Fields Too Large", "", "a head can have at most 8192 bytes\n",
               stats);
    } else if (result == REQUEST_VERSION) {
        refuse(response, &unknown, "505 HTTP Version Not Supported", "", "this server speaks HTTP/1.0 and 1.1\n",
               stats);
    } else {
        refuse(response, &unknown, "400 Bad Request", "", "not an HTTP/1.x request\n", stats);
    }
}
