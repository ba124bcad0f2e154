// What the files of this folder share: the answer to a question goes to standard output, a line for each question.
#ifndef POSTGRESQL_WIRE_ANSWERS_H
#define POSTGRESQL_WIRE_ANSWERS_H

#include "wire/postgresql/buffer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern struct pg_buffer buffer; // for what is written; main.c

const char *refusal(enum pg_written written);
void say_hex(const uint8_t *bytes, size_t length);
void say_written(enum pg_written written); // the bytes in the buffer, or the refusal

static inline struct pg_span text_of(const char *text)
{
    return (struct pg_span){(const uint8_t *)text, strlen(text)};
}

// sql.c
void say_kinds(struct pg_span text);
void rewrite(struct pg_span text, bool named, bool backslashes);

// values.c
void say_element(struct pg_span element);
void say_value(const char *type, struct pg_span value);
void put_text(const char *type, struct pg_span text);

// copy.c
void copy_out(bool csv, bool other, struct pg_span data);
void copy_in(bool csv, bool other, struct pg_span value);

// messages.c
void one_flight(struct pg_span sql, struct pg_span value);
void bind_many(uint32_t count, uint32_t values, uint32_t formats);
void say_refusals(void);
void say_messages(struct pg_span bytes);

#endif
