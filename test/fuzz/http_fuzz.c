// Throws bytes at the parsers and rules of wire/http, alone, under sanitizers: http_fuzz CORPUS INPUTS SEED
//
// Each input is a file of the corpus, changed a little, in memory of exactly its size. The sanitizers check accesses;
// this checks that a parser's answer lies within its input.
#include "wire/http/reuse.h"

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
        if (wire_http_header_line(p, next, false, false, &field) == HTTP_LINE_FIELD) {
            struct wire_http_facts before = *facts;
            wire_http_facts_add(facts, field.name, field.value);
            bool same = memcmp(&before, facts, sizeof before) == 0;
            check(same || wire_http_is_fact(field.name.length), "a fact is lost");
        }
        p = next;
    }
}

static struct wire_http_span text(const char *string)
{
    return (struct wire_http_span){(const uint8_t *)string, strlen(string)};
}

enum { READS = 1, PERMITS = 2, READ = 4, WHOLE = READS | PERMITS | READ };

static const struct known {
    const char *sent, *received, *method, *code;
    int client; // what it does with the body of the answer
    enum wire_http_reuse reuse;
    enum wire_http_sent_body body;
    uint64_t streamed;
} known_exchanges[] = {
    {"", "Content-Length: 3", "GET", "200", WHOLE, HTTP_REUSABLE, 0, 0},
    {"", "content-length: 0", "GET", "200", WHOLE, HTTP_REUSABLE, 0, 0},
    {"", "Transfer-Encoding: Chunked", "GET", "200", WHOLE, HTTP_REUSABLE, 0, 0},
    {"", "", "GET", "200", WHOLE, HTTP_PINNED, 0, 0}, // the end of the connection ends the body
    {"", "Content-Length: +3", "GET", "200", WHOLE, HTTP_PINNED, 0, 0},
    {"", "Content-Length: 3\nContent-Length: 3", "GET", "200", WHOLE, HTTP_PINNED, 0, 0},
    {"", "Content-Length: 3\nTransfer-Encoding: chunked", "GET", "200", WHOLE, HTTP_PINNED, 0, 0},
    {"", "Transfer-Encoding: gzip\nTransfer-Encoding: chunked", "GET", "200", WHOLE, HTTP_PINNED, 0, 0},
    {"", "Transfer-Encoding: gzip, chunked", "GET", "200", WHOLE, HTTP_PINNED, 0, 0},
    {"", "Content-Length: 3\nWWW-Authenticate: A\nWWW-Authenticate: negotiate", "GET", "401", WHOLE, HTTP_PINNED, 0, 0},
    {"", "Content-Length: 3\nProxy-Authenticate: NTLM abc", "GET", "407", WHOLE, HTTP_PINNED, 0, 0},
    {"", "Content-Length: 3\nWWW-Authenticate: Negotiated", "GET", "401", WHOLE, HTTP_REUSABLE, 0, 0},
    {"", "Content-Length: 3\nKeep-Alive: timeout=5, max=0", "GET", "200", WHOLE, HTTP_PINNED, 0, 0},
    {"", "Content-Length: 3\nKeep-Alive: timeout=5, max=01", "GET", "200", WHOLE, HTTP_REUSABLE, 0, 0},
    {"", "Content-Length: 3\nKeep-Alive: climax=0", "GET", "200", WHOLE, HTTP_REUSABLE, 0, 0},
    {"Authorization: Bearer N", "Content-Length: 3", "GET", "200", WHOLE, HTTP_REUSABLE, 0, 0},
    {"Authorization:  NTLM", "Content-Length: 3", "GET", "200", WHOLE, HTTP_PINNED, 0, 0},
    {"Upgrade: h2c", "Content-Length: 3", "GET", "200", WHOLE, HTTP_PINNED, 0, 0},
    {"Expect: 100-continue", "Content-Length: 3", "GET", "200", WHOLE, HTTP_UNCERTAIN, 0, 0},
    {"Content-Length: 0", "Content-Length: 3", "GET", "200", WHOLE, HTTP_REUSABLE, 0, 0},
    {"Content-Length: 1", "Content-Length: 3", "GET", "200", WHOLE, HTTP_PINNED, 0, 0}, // without a body
    {"Transfer-Encoding: chunked", "Content-Length: 3", "GET", "200", WHOLE, HTTP_PINNED, 0, 0},
    {"Content-Length: 5", "Content-Length: 3", "PUT", "200", WHOLE, HTTP_REUSABLE, HTTP_SENT_COUNTED, 0},
    {"Content-Length: 5", "Content-Length: 3", "PUT", "200", WHOLE, HTTP_PINNED, HTTP_SENT_STREAM, UINT64_MAX},
    {"Content-Length: 5", "Content-Length: 3", "PUT", "200", WHOLE, HTTP_PINNED, HTTP_SENT_STREAM, 4},
    {"Content-Length: 5", "Content-Length: 3", "PUT", "200", WHOLE, HTTP_REUSABLE, HTTP_SENT_STREAM, 5},
    {"Content-Length: 5", "Content-Length: 3", "PUT", "200", READS | PERMITS, HTTP_PINNED, HTTP_SENT_STREAM, 5},
    {"", "Content-Length: 3", "CONNECT", "200", WHOLE, HTTP_PINNED, 0, 0},
    {"", "Content-Length: 3", "HEAD", "200", PERMITS, HTTP_REUSABLE, 0, 0},
    {"", "Content-Length: 3", "HEAD", "200", WHOLE, HTTP_PINNED, 0, 0},
    {"", "Content-Length: 3", "HEAD", "200", PERMITS | READ, HTTP_PINNED, 0, 0},
    {"", "Content-Length: 3", "GET", "200", PERMITS, HTTP_PINNED, 0, 0},
    {"", "Content-Length: 3", "GET", "204", READS, HTTP_PINNED, 0, 0},
    {"", "Content-Length: 3", "GET", "304", READS, HTTP_REUSABLE, 0, 0},
    {"", "", "GET", "204", READS, HTTP_REUSABLE, 0, 0},
    {"", "", "GET", "205", READS, HTTP_PINNED, 0, 0},
};

static struct wire_http_exchange exchange_of(const struct known *known)
{
    struct wire_http_exchange exchange = {.method = text(known->method),
                                          .code = text(known->code),
                                          .version = text("1.1"),
                                          .body = known->body,
                                          .streamed = known->streamed,
                                          .reads_bodies = known->client & READS,
                                          .code_permits_body = known->client & PERMITS,
                                          .read_to_the_end = known->client & READ};
    add_lines(&exchange.sent, text(known->sent).at, text(known->sent).at + strlen(known->sent));
    add_lines(&exchange.received, text(known->received).at, text(known->received).at + strlen(known->received));
    return exchange;
}

static void check_exchanges(void)
{
    for (size_t i = 0; i < sizeof known_exchanges / sizeof *known_exchanges; i++) {
        struct wire_http_exchange exchange = exchange_of(&known_exchanges[i]);
        if (wire_http_reuse(&exchange) == known_exchanges[i].reuse) continue;
        fprintf(stderr, "fuzz: exchange %zu, %s / %s\n", i, known_exchanges[i].sent, known_exchanges[i].received);
        check(false, "it is judged differently");
    }
    struct wire_http_exchange chunked = exchange_of(&known_exchanges[2]);
    chunked.version = text("1.0");
    check(wire_http_reuse(&chunked) == HTTP_PINNED, "HTTP/1.0 has no chunks");
}

static void check_seconds(const char *received, double seconds)
{
    struct wire_http_exchange exchange = {0};
    add_lines(&exchange.received, text(received).at, text(received).at + strlen(received));
    check(wire_http_idle_seconds(&exchange.received, 10) == seconds, "the time of an idle connection");
}

// Both messages have fields of the input.
static void try_exchange(const uint8_t *input, const uint8_t *end)
{
    struct wire_http_exchange exchange = exchange_of(&known_exchanges[3]);
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
    check_exchanges();
    check_seconds("Keep-Alive: timeout=5", 2.5);
    check_seconds("Keep-Alive: timeout=0", -0.5);
    check_seconds("Keep-Alive: max=3, Timeout = \"8\"", 4);
    check_seconds("Keep-Alive: max=3", 10);
    check_seconds("Keep-Alive: timeout=99999999999999999999999999", 10);
    static const char tells[] = "\r\n: \t\0-/;.0aF\xff\x7f";
    return fuzz(argc, argv, tells, sizeof tells - 1, 1);
}
