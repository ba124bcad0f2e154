// Throws bytes at the parsers and rules of wire/wire_http*.c, alone, under sanitizers: http_fuzz CORPUS INPUTS SEED
//
// Each input is a file of the corpus, changed a little, in memory of exactly its size. The sanitizers check accesses;
// this checks that a parser's answer lies within its input.
#include "wire/wire_http_reuse.h"

#include "fuzz.h"

static void check_span(struct wire_http_span span, const uint8_t *p, const uint8_t *end)
{
    if (!span.at) return;
    check(span.at >= p && span.at <= end && span.length <= (size_t)(end - span.at), "a span leaves its input");
}

static void try_line(const uint8_t *p, const uint8_t *end)
{
    size_t length = (size_t)(end - p);
    check(wire_http_chopped(p, length) <= length, "a chopped line is longer");
    struct wire_http_status status;
    if (wire_http_status_line(p, p + wire_http_chopped(p, length), &status)) {
        check_span(status.version, p, end);
        check_span(status.code, p, end);
        check_span(status.message, p, end);
        check(status.code.length == 3, "a code has three digits");
    }
    for (int way = 0; way < 4; way++) {
        struct wire_http_field field;
        enum wire_http_line kind = wire_http_header_line(p, end, way & 1, way >> 1, &field);
        check_span(field.name, p, end);
        check_span(field.value, p, end);
        check(kind != HTTP_LINE_CONTINUATION || way >> 1, "nothing is there to be continued");
        check(kind != HTTP_LINE_FIELD || (field.name.at && field.value.at), "a field has both parts");
        if (field.plain && field.value.length)
            check(!memchr(field.value.at, '\r', field.value.length), "a plain value has a CR");
        if (kind != HTTP_LINE_FIELD) continue;
        uint8_t *capitalized = malloc(field.name.length + 1);
        check(wire_http_capitalize(field.name.at, field.name.length, capitalized) <= field.name.length, "a name grows");
        free(capitalized);
    }
    uint64_t number;
    wire_http_chunk_size(p, end, &number);
    if (wire_http_plain_number(p, end, &number)) check(number < UINT64_C(1000000000000000000), "a number of 18 digits");
}

// ---- whether a connection is reused

static void add_lines(struct wire_http_facts *facts, const uint8_t *p, const uint8_t *end)
{
    while (p < end) {
        const uint8_t *line_end = memchr(p, '\n', (size_t)(end - p));
        const uint8_t *next = line_end ? line_end + 1 : end;
        struct wire_http_field field;
        if (wire_http_header_line(p, next, false, false, &field) == HTTP_LINE_FIELD)
            wire_http_facts_add(facts, field.name, field.value);
        p = next;
    }
}

static struct wire_http_span text(const char *string)
{
    return (struct wire_http_span){(const uint8_t *)string, strlen(string)};
}

// The exchange of a GET whose answer has been read to its end.
static struct wire_http_exchange exchange_of(const char *sent, const char *received)
{
    struct wire_http_exchange exchange = {.method = text("GET"), .code = text("200"), .version = text("1.1"),
        .streamed = UINT64_MAX, .reads_bodies = true, .code_permits_body = true, .read_to_the_end = true};
    add_lines(&exchange.sent, (const uint8_t *)sent, (const uint8_t *)sent + strlen(sent));
    add_lines(&exchange.received, (const uint8_t *)received, (const uint8_t *)received + strlen(received));
    return exchange;
}

// By fields alone.
static void check_fields(void)
{
    static const struct {
        const char *sent, *received;
        enum wire_http_reuse reuse;
    } known[] = {
        {"", "Content-Length: 3", HTTP_REUSABLE},
        {"", "content-length: 0", HTTP_REUSABLE},
        {"", "Transfer-Encoding: Chunked", HTTP_REUSABLE},
        {"", "", HTTP_PINNED}, // the end of the connection ends the body
        {"", "Content-Length: +3", HTTP_PINNED},
        {"", "Content-Length: 3\nContent-Length: 3", HTTP_PINNED},
        {"", "Content-Length: 3\nTransfer-Encoding: chunked", HTTP_PINNED},
        {"", "Transfer-Encoding: gzip\nTransfer-Encoding: chunked", HTTP_PINNED},
        {"", "Transfer-Encoding: gzip, chunked", HTTP_PINNED},
        {"", "Content-Length: 3\nWWW-Authenticate: Basic\nWWW-Authenticate: negotiate", HTTP_PINNED},
        {"", "Content-Length: 3\nProxy-Authenticate: NTLM abc", HTTP_PINNED},
        {"", "Content-Length: 3\nWWW-Authenticate: Negotiated", HTTP_REUSABLE},
        {"", "Content-Length: 3\nKeep-Alive: timeout=5, max=0", HTTP_PINNED},
        {"", "Content-Length: 3\nKeep-Alive: timeout=5, max=01", HTTP_REUSABLE},
        {"", "Content-Length: 3\nKeep-Alive: climax=0", HTTP_REUSABLE},
        {"Authorization: Bearer N", "Content-Length: 3", HTTP_REUSABLE},
        {"Authorization:  NTLM", "Content-Length: 3", HTTP_PINNED},
        {"Upgrade: h2c", "Content-Length: 3", HTTP_PINNED},
        {"Expect: 100-continue", "Content-Length: 3", HTTP_UNCERTAIN},
        {"Content-Length: 0", "Content-Length: 3", HTTP_REUSABLE},
        {"Content-Length: 1", "Content-Length: 3", HTTP_PINNED}, // without a body
        {"Transfer-Encoding: chunked", "Content-Length: 3", HTTP_PINNED},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        struct wire_http_exchange exchange = exchange_of(known[i].sent, known[i].received);
        enum wire_http_reuse reuse = wire_http_reuse(&exchange);
        if (reuse != known[i].reuse) fprintf(stderr, "fuzz: %s / %s\n", known[i].sent, known[i].received);
        check(reuse == known[i].reuse, "fields are judged differently");
    }
}

static void check_bodies(void)
{
    struct wire_http_exchange exchange = exchange_of("Content-Length: 5", "Content-Length: 3");
    exchange.body = HTTP_SENT_COUNTED;
    check(wire_http_reuse(&exchange) == HTTP_REUSABLE, "a body of a known length is whole");
    exchange.body = HTTP_SENT_STREAM;
    check(wire_http_reuse(&exchange) == HTTP_PINNED, "nobody knows how long the stream was");
    exchange.streamed = 4;
    check(wire_http_reuse(&exchange) == HTTP_PINNED, "a stream was too short");
    exchange.streamed = 5;
    check(wire_http_reuse(&exchange) == HTTP_REUSABLE, "a stream was whole");
    exchange.read_to_the_end = false;
    check(wire_http_reuse(&exchange) == HTTP_PINNED, "the rest of an answer is still to come");

    exchange = exchange_of("", "Content-Length: 3");
    exchange.method = text("CONNECT");
    check(wire_http_reuse(&exchange) == HTTP_PINNED, "what follows a CONNECT is no HTTP");
    exchange.method = text("HEAD");
    check(wire_http_reuse(&exchange) == HTTP_PINNED, "the body of an answer without one was read");
    exchange.reads_bodies = exchange.read_to_the_end = false;
    check(wire_http_reuse(&exchange) == HTTP_REUSABLE, "a HEAD has no body");
    exchange.method = text("GET");
    check(wire_http_reuse(&exchange) == HTTP_PINNED, "the body was not read");

    exchange = exchange_of("", "Content-Length: 3");
    exchange.code_permits_body = exchange.read_to_the_end = false;
    check(wire_http_reuse(&exchange) == HTTP_PINNED, "a body that must not be there");
    exchange.code = text("304");
    check(wire_http_reuse(&exchange) == HTTP_REUSABLE, "304 tells the length of another body");
    exchange = exchange_of("", "");
    exchange.code_permits_body = exchange.read_to_the_end = false;
    check(wire_http_reuse(&exchange) == HTTP_PINNED, "no length, and not 204");
    exchange.code = text("204");
    check(wire_http_reuse(&exchange) == HTTP_REUSABLE, "204");

    exchange = exchange_of("", "Transfer-Encoding: chunked");
    exchange.version = text("1.0");
    check(wire_http_reuse(&exchange) == HTTP_PINNED, "HTTP/1.0 has no chunks");
}

static void check_seconds(const char *received, double seconds)
{
    struct wire_http_exchange exchange = exchange_of("", received);
    check(wire_http_idle_seconds(&exchange.received, 10) == seconds, "the time of an idle connection");
}

// Both messages have fields of the input.
static void try_exchange(const uint8_t *input, const uint8_t *end)
{
    struct wire_http_exchange exchange = exchange_of("", "");
    const uint8_t *middle = input + (end - input) / 2;
    add_lines(&exchange.sent, input, middle);
    add_lines(&exchange.received, middle, end);
    check(wire_http_idle_seconds(&exchange.received, 10) <= 10, "a connection rests for too long");
    if (wire_http_reuse(&exchange) == HTTP_PINNED) return;
    check(exchange.received.codings + exchange.received.lengths == 1, "an answer has one length");
    check(exchange.sent.codings == 0, "a request without a body announces none");
    check(!exchange.sent.binds && !exchange.received.binds && !exchange.received.used_up, "a field forbids it");
}

static void try_input(const uint8_t *input, const uint8_t *end)
{
    size_t length = (size_t)(end - input);
    bool high = false;
    for (size_t i = 0; i < length; i++)
        high = high || input[i] & 0x80;
    check(wire_http_any_high(input, length) == high, "bytes above 127");
    const uint8_t *p = input;
    while (p < end) {
        const uint8_t *line_end = memchr(p, '\n', (size_t)(end - p));
        const uint8_t *next = line_end ? line_end + 1 : end;
        try_line(p, next);
        p = next;
    }
    try_line(input, end);
    try_exchange(input, end);
}

int main(int argc, char **argv)
{
    check_fields();
    check_bodies();
    check_seconds("Keep-Alive: timeout=5", 2.5);
    check_seconds("Keep-Alive: timeout=0", -0.5);
    check_seconds("Keep-Alive: max=3, Timeout = \"8\"", 4);
    check_seconds("Keep-Alive: max=3", 10);
    check_seconds("Keep-Alive: timeout=99999999999999999999999999", 10);
    static const char tells[] = "\r\n: \t\0-/;.0aF\xff\x7f";
    return fuzz(argc, argv, tells, sizeof tells - 1, 1);
}
