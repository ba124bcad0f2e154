// A growing text, in plain C memory: for native threads as well.
#ifndef HEDDLE_INSIGHT_TEXT_H
#define HEDDLE_INSIGHT_TEXT_H

#include <stdbool.h>
#include <stddef.h>

struct text {
    char *bytes;
    size_t length, capacity;
    bool failed; // for lack of memory: the text is not complete
};

void text_add(struct text *text, const char *bytes, size_t length);
void text_format(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

// A String of JSON, with or without its quotes. Whatever is not valid UTF-8 becomes a question mark.
void text_string(struct text *text, const char *bytes, size_t length);
void text_escaped(struct text *text, const char *bytes, size_t length);
void text_free(struct text *text);

#endif
