// A server's text for messages. A hostile server must neither control the terminal that shows the message, nor break
// the message's encoding.
#include "db/server_text.h"

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
    while (p < end && !control(p, end))
        p++;
    if (p == end) return text;
    VALUE shown = rb_utf8_str_new(NULL, 0);
    for (const uint8_t *kept = p = begin;;) {
        size_t length = p < end ? control(p, end) : 0;
        if (p == end || length) rb_str_cat(shown, (const char *)kept, (long)(p - kept));
        if (p == end) break;
        if (length) rb_str_catf(shown, "\\x%02X", (unsigned)p[length - 1]);
        p += length ? length : 1;
        if (length) kept = p;
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
    return without_controls(server_utf8(bytes, length, encoding));
}
