#include "upload.h"

#include "body.h"

#include <string.h>

enum { LONGEST_LINE = 8192 };
static const uint64_t LARGEST_CHUNK = UINT64_C(1) << 40;

void upload_begin(struct upload *upload, const struct request *request)
{
    *upload = (struct upload){.minor = request->minor,
                              .keep_alive = request->keep_alive,
                              .chunked = request->chunked,
                              .right = true,
                              .left = request->content_length,
                              .place = request->chunked ? UPLOAD_SIZE : UPLOAD_DATA};
    if (!request->chunked && upload->left == 0) upload->place = UPLOAD_OVER;
}

static size_t take_data(struct upload *upload, const char *bytes, size_t length)
{
    size_t taken = 0;
    if (length > upload->left) length = (size_t)upload->left;
    while (taken < length) {
        size_t at = (size_t)(upload->received % PATTERN_SIZE), part = PATTERN_SIZE - at;
        if (part > length - taken) part = length - taken;
        if (memcmp(bytes + taken, body_pattern + at, part) != 0) upload->right = false;
        upload->received += part;
        taken += part;
    }
    upload->left -= taken;
    if (upload->left == 0) upload->place = upload->chunked ? UPLOAD_CHUNK_END : UPLOAD_OVER;
    return taken;
}

static int digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The line after a chunk's size. */
static void end_size(struct upload *upload)
{
    upload->line = 0;
    upload->digits = false;
    upload->place = upload->left > 0 ? UPLOAD_DATA : UPLOAD_TRAILER;
}

/* Takes one byte of the framing between chunks (RFC 9112 7.1). False if it is malformed. */
static bool take_frame(struct upload *upload, char c)
{
    if (++upload->line > LONGEST_LINE) return false;
    switch (upload->place) {
    case UPLOAD_SIZE: {
        int value = digit(c);
        if (value >= 0) {
            upload->left = upload->left * 16 + (uint64_t)value;
            upload->digits = true;
            return upload->left <= LARGEST_CHUNK;
        }
        if (!upload->digits || (c != '\r' && c != ';' && c != ' ' && c != '\t')) return false;
        upload->place = UPLOAD_SIZE_END;
        return true;
    }
    case UPLOAD_SIZE_END: /* an extension, which is ignored */
        if (c == '\n') end_size(upload);
        return true;
    case UPLOAD_CHUNK_END:
        if (c == '\r' && upload->line == 1) return true;
        if (c != '\n' || upload->line != 2) return false;
        upload->line = 0;
        upload->place = UPLOAD_SIZE;
        return true;
    default: /* UPLOAD_TRAILER: lines up to an empty one */
        if (c == '\r') {
            upload->line--; /* an empty line consists only of it and \\n */
        } else if (c == '\n') {
            if (upload->line == 1) upload->place = UPLOAD_OVER;
            upload->line = 0;
        }
        return true;
    }
}

enum upload_result upload_take(struct upload *upload, const char *bytes, size_t length, size_t *taken)
{
    *taken = 0;
    while (upload->place != UPLOAD_OVER && *taken < length) {
        if (upload->place == UPLOAD_DATA) {
            *taken += take_data(upload, bytes + *taken, length - *taken);
        } else if (!take_frame(upload, bytes[(*taken)++])) {
            return UPLOAD_BAD;
        }
    }
    return upload->place == UPLOAD_OVER ? UPLOAD_DONE : UPLOAD_MORE;
}
