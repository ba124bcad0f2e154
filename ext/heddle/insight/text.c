#include "insight/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool make_room(struct text *text, size_t more)
{
    if (text->failed) return false;
    if (text->capacity - text->length >= more) return true;
    size_t capacity = text->capacity ? text->capacity * 2 : 1024;
    while (capacity - text->length < more)
        capacity *= 2;
    char *bytes = realloc(text->bytes, capacity);
    if (!bytes) {
        text->failed = true;
        return false;
    }
    text->bytes = bytes;
    text->capacity = capacity;
    return true;
}

void text_add(struct text *text, const char *bytes, size_t length)
{
    if (!make_room(text, length)) return;
    memcpy(text->bytes + text->length, bytes, length);
    text->length += length;
}

void text_format(struct text *text, const char *format, ...)
{
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    if (length < 0 || (size_t)length >= sizeof(line)) {
        text->failed = true;
    } else {
        text_add(text, line, (size_t)length);
    }
}

// The length of the character of UTF-8 that begins here, or 0 if it is none.
static size_t character(const unsigned char *at, size_t left)
{
    size_t length = at[0] < 0x80 ? 1 : at[0] >= 0xC2 && at[0] < 0xE0 ? 2 : (at[0] & 0xF0) == 0xE0 ? 3 : 4;
    if (length > left || (length == 4 && (at[0] < 0xF0 || at[0] > 0xF4))) return 0;
    for (size_t i = 1; i < length; i++) {
        if ((at[i] & 0xC0) != 0x80) return 0;
    }
    if (at[0] == 0xE0 && at[1] < 0xA0) return 0; // too long
    if (at[0] == 0xED && at[1] > 0x9F) return 0; // a surrogate
    if (at[0] == 0xF0 && at[1] < 0x90) return 0;
    if (at[0] == 0xF4 && at[1] > 0x8F) return 0;
    return length;
}

void text_escaped(struct text *text, const char *bytes, size_t length)
{
    const unsigned char *at = (const unsigned char *)bytes, *end = at + length;
    while (at < end) {
        size_t size = character(at, (size_t)(end - at));
        if (size == 0) {
            text_add(text, "?", 1);
            size = 1;
        } else if (*at == '"' || *at == '\\') {
            char escaped[] = {'\\', (char)*at};
            text_add(text, escaped, 2);
        } else if (*at < 0x20 || *at == 0x7F) {
            text_format(text, "\\u%04x", *at);
        } else {
            text_add(text, (const char *)at, size);
        }
        at += size;
    }
}

void text_string(struct text *text, const char *bytes, size_t length)
{
    text_add(text, "\"", 1);
    text_escaped(text, bytes, length);
    text_add(text, "\"", 1);
}

void text_free(struct text *text)
{
    free(text->bytes);
    *text = (struct text){0};
}
