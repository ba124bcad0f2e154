// A server's text for messages. A hostile server must neither control the terminal that shows the message, nor break
// the message's encoding.
#include "db/server_text.h"

#include <string.h>

// The most bytes of a text that a message shows: escaping a longer text takes time, and nobody reads it.
enum { LONGEST = 1 << 20 };

// The length of the UTF-8 control character at `p`: C0 except newline and tab, DEL, and C1. 0 for any other character.
static size_t control(const uint8_t *p, const uint8_t *end)
{
    if (*p < 0x20) return *p != '\n' && *p != '\t';
    if (*p == 0x7f) return 1;
    return *p == 0xc2 && end - p > 1 && p[1] >= 0x80 && p[1] <= 0x9f ? 2 : 0;
}

static VALUE without_controls(VALUE text)
{
    const uint8_t *begin = (const uint8_t *)RSTRING_PTR(text), *end = begin + RSTRING_LEN(text), *p = begin;
    static const char digits[] = "0123456789ABCDEF";
    enum { SHOWN = 4 }; // bytes of \xNN
    size_t size = 0, length;
    for (; p < end; p += length ? length : 1) {
        length = control(p, end);
        size += length ? SHOWN : 1;
    }
    if (size == (size_t)(end - begin)) return text; // no control characters: they would take more room
    VALUE shown = rb_utf8_str_new(NULL, (long)size);
    char *at = RSTRING_PTR(shown);
    for (p = begin; p < end; p += length ? length : 1) {
        length = control(p, end);
        if (length) {
            uint8_t byte = p[length - 1];
            const char escape[SHOWN] = {'\\', 'x', digits[byte >> 4], digits[byte & 15]};
            memcpy(at, escape, SHOWN);
            at += SHOWN;
        } else {
            *at++ = (char)*p;
        }
    }
    RB_GC_GUARD(text);
    return shown;
}

VALUE server_utf8(const char *bytes, size_t length, rb_encoding *encoding)
{
    bool same = encoding == rb_utf8_encoding() || encoding == rb_ascii8bit_encoding();
    VALUE text = rb_enc_str_new(bytes, (long)length, same ? rb_utf8_encoding() : encoding);
    if (!same)
        text = rb_str_encode(text, rb_enc_from_encoding(rb_utf8_encoding()),
                             ECONV_INVALID_REPLACE | ECONV_UNDEF_REPLACE, Qnil);
    // Ruby's scrub takes microseconds even for a short text that needs none.
    return rb_enc_str_coderange(text) == ENC_CODERANGE_BROKEN ? rb_str_scrub(text, Qnil) : text;
}

VALUE server_text(const char *bytes, size_t length, rb_encoding *encoding)
{
    if (length <= LONGEST) return without_controls(server_utf8(bytes, length, encoding));
    const char *end = rb_enc_left_char_head(bytes, bytes + LONGEST, bytes + length, encoding);
    VALUE text = without_controls(server_utf8(bytes, (size_t)(end - bytes), encoding));
    return rb_str_catf(text, "… (%zu bytes more)", length - (size_t)(end - bytes));
}
