#include "wire/http/reuse.h"

#include <string.h>
#include <strings.h>

// ---- fields

static bool is_blank(uint8_t byte)
{
    return byte == ' ' || (byte >= '\t' && byte <= '\r');
}

static bool http_is_word(uint8_t byte)
{
    uint8_t lower = byte | 0x20;
    return (lower >= 'a' && lower <= 'z') || (byte >= '0' && byte <= '9') || byte == '_';
}

static const uint8_t *skip_blanks(const uint8_t *p, const uint8_t *end)
{
    while (p < end && is_blank(*p))
        p++;
    return p;
}

static bool http_is_text(struct wire_http_span span, const char *text)
{
    size_t length = strlen(text);
    return span.length == length && (length == 0 || strncasecmp((const char *)span.at, text, length) == 0);
}

// Returns the end of the word if it stands there; or NULL.
static const uint8_t *after_word(const uint8_t *p, const uint8_t *end, const char *word)
{
    size_t length = strlen(word);
    if ((size_t)(end - p) < length || strncasecmp((const char *)p, word, length) != 0) return NULL;
    return p + length < end && http_is_word(p[length]) ? NULL : p + length;
}

static void add_scheme(struct wire_http_facts *facts, struct wire_http_span value)
{
    const uint8_t *end = value.at + value.length, *p = skip_blanks(value.at, end);
    if (after_word(p, end, "NTLM") || after_word(p, end, "Negotiate")) facts->binds = true;
}

// Finds `NAME = NUMBER`, with or without quotes. Returns false if the name is absent. What is not a number counts as 0.
static bool parameter(struct wire_http_span value, const char *name, uint64_t *number)
{
    const uint8_t *end = value.at + value.length;
    for (const uint8_t *p = value.at; p < end; p++) {
        if (p > value.at && http_is_word(p[-1])) continue;
        const uint8_t *after = after_word(p, end, name);
        if (!after) continue;
        after = skip_blanks(after, end);
        if (after == end || *after != '=') continue;
        after = skip_blanks(after + 1, end);
        if (after < end && *after == '"') after++;
        *number = 0;
        for (; after < end && *after >= '0' && *after <= '9'; after++)
            *number = *number > UINT32_MAX ? *number : *number * 10 + (uint64_t)(*after - '0');
        return true;
    }
    return false;
}

static void add_keep_alive(struct wire_http_facts *facts, struct wire_http_span value)
{
    uint64_t number;
    if (parameter(value, "max", &number) && number == 0) facts->used_up = true;
    if (!facts->timed && parameter(value, "timeout", &facts->timeout)) facts->timed = true;
}

void wire_http_facts_add(struct wire_http_facts *facts, struct wire_http_span name, struct wire_http_span value)
{
    switch (name.length) { // most fields are none of these: no name is compared with more than one
    case 6:
        if (http_is_text(name, "expect")) facts->expect = true;
        break;
    case 7:
        if (http_is_text(name, "upgrade")) facts->upgrade = true;
        break;
    case 10:
        if (http_is_text(name, "keep-alive")) add_keep_alive(facts, value);
        break;
    case 13:
        if (http_is_text(name, "authorization")) add_scheme(facts, value);
        break;
    case 14:
        if (!http_is_text(name, "content-length")) break;
        facts->lengths++;
        facts->sized = wire_http_plain_number(value.at, value.at + value.length, &facts->length);
        break;
    case 16:
        if (http_is_text(name, "www-authenticate")) add_scheme(facts, value);
        break;
    case 17:
        if (!http_is_text(name, "transfer-encoding")) break;
        facts->codings++;
        facts->chunked = http_is_text(value, "chunked");
        break;
    case 18:
        if (http_is_text(name, "proxy-authenticate")) add_scheme(facts, value);
        break;
    case 19:
        if (http_is_text(name, "proxy-authorization")) add_scheme(facts, value);
        break;
    }
}

// ---- rules

// Of two lengths, the other side may mean the other one (RFC 9112, 6.3).
static bool is_chunked(const struct wire_http_facts *facts)
{
    return facts->codings == 1 && facts->chunked && facts->lengths == 0;
}

static bool is_sized(const struct wire_http_facts *facts)
{
    return facts->codings == 0 && facts->lengths == 1 && facts->sized;
}

static bool announces_nothing(const struct wire_http_facts *facts)
{
    return facts->codings == 0 && (facts->lengths == 0 || (is_sized(facts) && facts->length == 0));
}

// Whether the request had exactly the body that its fields announce. Otherwise the server takes the next request for
// the rest of this one.
static bool sent_whole(const struct wire_http_exchange *exchange)
{
    const struct wire_http_facts *sent = &exchange->sent;
    if (exchange->body == HTTP_SENT_COUNTED) return true;
    if (exchange->body == HTTP_SENT_NONE) return announces_nothing(sent);
    return is_chunked(sent) || (is_sized(sent) && sent->length == exchange->streamed);
}

// Whether the answer's end is beyond doubt.
static bool received_whole(const struct wire_http_exchange *exchange)
{
    const struct wire_http_facts *received = &exchange->received;
    bool head = http_is_text(exchange->method, "HEAD");
    if (head || !exchange->reads_bodies) // otherwise too much or too little was read
        return head && !exchange->reads_bodies && !exchange->read_to_the_end;
    if (http_is_text(exchange->code, "304")) return true;
    if (!exchange->code_permits_body)
        return announces_nothing(received) && (received->lengths == 1 || http_is_text(exchange->code, "204"));
    if (!exchange->read_to_the_end) return false;
    return is_sized(received) || (is_chunked(received) && !http_is_text(exchange->version, "1.0"));
}

enum wire_http_reuse wire_http_reuse(const struct wire_http_exchange *exchange)
{
    if (exchange->sent.binds || exchange->received.binds || exchange->received.used_up) return HTTP_PINNED;
    // After these requests the bytes on the connection may be something else than answers.
    if (exchange->sent.upgrade || http_is_text(exchange->method, "CONNECT")) return HTTP_PINNED;
    if (!sent_whole(exchange) || !received_whole(exchange)) return HTTP_PINNED;
    return exchange->sent.expect ? HTTP_UNCERTAIN : HTTP_REUSABLE;
}

// The server counts from when it has sent the answer, and the next request takes its time, too: half of the server's
// time is left for both. Of no time nothing is left.
double wire_http_idle_seconds(const struct wire_http_facts *received, double most)
{
    if (!received->timed) return most;
    double seconds = received->timeout ? (double)received->timeout / 2 : -0.5;
    return seconds < most ? seconds : most;
}
