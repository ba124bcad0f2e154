#include "wire/mysql/packets.h"

#include <string.h>

// ---- numbers

size_t mysql_put_number(uint8_t *p, uint64_t number)
{
    size_t bytes = number < 251 ? 0 : number < 0x10000 ? 2 : number < 0x1000000 ? 3 : 8;
    if (bytes == 0) {
        p[0] = (uint8_t)number;
        return 1;
    }
    p[0] = (uint8_t)(bytes == 2 ? 0xfc : bytes == 3 ? 0xfd : 0xfe);
    mysql_put_little(p + 1, number, bytes);
    return 1 + bytes;
}

static bool take_terminated(const uint8_t **p, const uint8_t *end, struct mysql_span *span)
{
    const uint8_t *nul = memchr(*p, 0, (size_t)(end - *p));
    if (!nul) return false;
    *span = (struct mysql_span){*p, (size_t)(nul - *p)};
    *p = nul + 1;
    return true;
}

// ---- the greeting

bool mysql_greeting(const uint8_t *p, const uint8_t *end, struct mysql_greeting *greeting)
{
    memset(greeting, 0, sizeof(*greeting));
    if (p >= end || *p++ != 10) return false;
    uint64_t number;
    if (!take_terminated(&p, end, &greeting->version)) return false;
    if (!mysql_take(&p, end, 4, &number)) return false;
    greeting->thread = (uint32_t)number;
    if (end - p < 8 + 1 + 2 + 1 + 2 + 2 + 1 + 10 + 12) return false;
    memcpy(greeting->scramble, p, 8);
    p += 9;
    uint64_t low = mysql_little(p, 2);
    greeting->status = (uint16_t)mysql_little(p + 3, 2);
    greeting->capabilities = low | mysql_little(p + 5, 2) << 16;
    greeting->mariadb = !(low & MYSQL_CAN_LONG_PASSWORD);
    if (greeting->mariadb) greeting->capabilities |= mysql_little(p + 14, 4) << 32;
    size_t length = p[7]; // of both parts of the scramble, including a NUL
    p += 18;
    size_t rest = length > 8 + 13 ? length - 8 : 13;
    memcpy(greeting->scramble + 8, p, MYSQL_SCRAMBLE - 8);
    p += (size_t)(end - p) < rest ? (size_t)(end - p) : rest;
    if (!(greeting->capabilities & MYSQL_CAN_PLUGIN_AUTH)) return true;
    if (!take_terminated(&p, end, &greeting->plugin)) greeting->plugin = (struct mysql_span){p, (size_t)(end - p)};
    return true;
}

// ---- replies

enum mysql_reply mysql_reply(const uint8_t *p, const uint8_t *end)
{
    if (p >= end) return MYSQL_REPLY_INVALID;
    switch (*p) {
    case 0x00: return MYSQL_REPLY_OK;
    case 0xff: return MYSQL_REPLY_ERROR;
    case 0xfb: return MYSQL_REPLY_INFILE;
    case 0xfe: return end - p < 9 ? MYSQL_REPLY_END : MYSQL_REPLY_OTHER;
    default: return MYSQL_REPLY_OTHER;
    }
}

enum mysql_reply mysql_row_reply(const uint8_t *p, const uint8_t *end, bool text, bool deprecate_eof)
{
    if (p >= end) return MYSQL_REPLY_INVALID;
    if (*p == 0xff) return MYSQL_REPLY_ERROR;
    // A row of a text result may also begin with 0xfe, if its first column has 16 MiB or more.
    if (*p == 0xfe && end - p < (deprecate_eof ? MYSQL_LARGEST_PACKET : 9)) return MYSQL_REPLY_END;
    return text || *p == 0 ? MYSQL_REPLY_OTHER : MYSQL_REPLY_INVALID;
}

// Session trackers. The others report variables, the default database, and that something of the session changed.
enum { TRACKER_GTIDS = 3, TRACKER_TRANSACTION_STATE = 5 };

// Returns whether a tracker behind the OK's message reports a change of the session. MySQL sets the flag for a
// transaction's beginning and end, too. True for what cannot be read.
static bool tracks_change(const uint8_t *p, const uint8_t *end)
{
    struct mysql_span message, trackers;
    if (!mysql_string(&p, end, &message) || !mysql_string(&p, end, &trackers) || !trackers.length) return true;
    p = trackers.at;
    end = p + trackers.length;
    while (p < end) {
        uint8_t type = *p++;
        if (type < TRACKER_GTIDS || type > TRACKER_TRANSACTION_STATE) return true;
        struct mysql_span data;
        if (!mysql_string(&p, end, &data)) return true;
    }
    return false;
}

bool mysql_ok(const uint8_t *p, const uint8_t *end, struct mysql_ok *ok)
{
    if (p >= end || (*p != 0x00 && *p != 0xfe)) return false;
    p++;
    if (!mysql_number(&p, end, &ok->affected) || !mysql_number(&p, end, &ok->last_id) ||
        !mysql_take_16(&p, end, &ok->status) || !mysql_take_16(&p, end, &ok->warnings))
        return false;
    ok->session_changed = ok->status & MYSQL_SESSION_CHANGED && tracks_change(p, end);
    return true;
}

bool mysql_end(const uint8_t *p, const uint8_t *end, struct mysql_ok *ok)
{
    *ok = (struct mysql_ok){0};
    if (p >= end || *p++ != 0xfe) return false;
    if (!mysql_take_16(&p, end, &ok->warnings) || !mysql_take_16(&p, end, &ok->status)) return false;
    ok->session_changed = ok->status & MYSQL_SESSION_CHANGED;
    return true;
}

bool mysql_error(const uint8_t *p, const uint8_t *end, struct mysql_error *error)
{
    *error = (struct mysql_error){0};
    if (p >= end || *p++ != 0xff || !mysql_take_16(&p, end, &error->code)) return false;
    if (end - p >= 6 && *p == '#') {
        error->state = (struct mysql_span){p + 1, 5};
        p += 6;
    }
    error->message = (struct mysql_span){p, (size_t)(end - p)};
    return true;
}

bool mysql_prepared(const uint8_t *p, const uint8_t *end, struct mysql_prepared *prepared)
{
    if (end - p < 9 || *p != 0) return false;
    prepared->id = (uint32_t)mysql_little(p + 1, 4);
    prepared->columns = (uint16_t)mysql_little(p + 5, 2);
    prepared->parameters = (uint16_t)mysql_little(p + 7, 2);
    return true;
}

bool mysql_result_head(const uint8_t *p, const uint8_t *end, bool announced, uint32_t *columns, bool *definitions)
{
    uint64_t count;
    if (!mysql_number(&p, end, &count) || count == 0 || count > UINT16_MAX) return false;
    *columns = (uint32_t)count;
    *definitions = true;
    if (announced) {
        if (p >= end) return false;
        *definitions = *p++ != 0;
    }
    return p == end;
}

bool mysql_column(const uint8_t *p, const uint8_t *end, struct mysql_column *column)
{
    struct mysql_span catalog;
    uint64_t fixed, length;
    if (!mysql_string(&p, end, &catalog) || !mysql_string(&p, end, &column->schema) ||
        !mysql_string(&p, end, &column->table) || !mysql_string(&p, end, &column->original_table) ||
        !mysql_string(&p, end, &column->name) || !mysql_string(&p, end, &column->original_name))
        return false;
    if (!mysql_number(&p, end, &fixed) || fixed < 10 || fixed > (uint64_t)(end - p)) return false;
    if (!mysql_take_16(&p, end, &column->charset) || !mysql_take(&p, end, 4, &length)) return false;
    column->length = (uint32_t)length;
    column->type = *p++;
    if (!mysql_take_16(&p, end, &column->flags)) return false;
    column->decimals = *p;
    return true;
}
