// Asks ext/heddle/wire/postgresql for test/wire/postgresql_*_test.rb. A line has a question and its arguments
// in hexadecimals, with a space between; the answer is a line, too.
#include "answers.h"

static bool grow(struct pg_buffer *buffer, size_t room)
{
    size_t capacity = 2 * buffer->capacity + room;
    buffer->at = realloc(buffer->at, capacity);
    buffer->capacity = capacity;
    return buffer->at != NULL;
}

struct pg_buffer buffer = {.grow = grow};

const char *refusal(enum pg_written written)
{
    static const char *const names[] = {"written",   "no room",        "NUL in string", "too long",
                                        "too many",  "formats differ", "count differs", "out of range",
                                        "malformed", "unknown name"};
    return names[written];
}

static int digit(char hexadecimal)
{
    return hexadecimal <= '9' ? hexadecimal - '0' : hexadecimal - 'a' + 10;
}

// Bytes in hexadecimals.
static struct pg_span unhex(const char *text)
{
    size_t length = strlen(text) / 2;
    uint8_t *bytes = malloc(length + 1);
    for (size_t i = 0; i < length; i++)
        bytes[i] = (uint8_t)(digit(text[2 * i]) << 4 | digit(text[2 * i + 1]));
    return (struct pg_span){bytes, length};
}

void say_hex(const uint8_t *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++)
        printf("%02x", bytes[i]);
}

void say_written(enum pg_written written)
{
    if (written) {
        printf("%s", refusal(written));
    } else {
        say_hex(buffer.at, buffer.length);
    }
}

static void answer(const char *question, char **arguments, int count)
{
    struct pg_span first = unhex(count > 0 ? arguments[0] : "");
    if (strcmp(question, "kinds") == 0) say_kinds(first);
    if (strcmp(question, "questions") == 0) rewrite(first, false, false);
    if (strcmp(question, "questions_with_backslashes") == 0) rewrite(first, false, true);
    if (strcmp(question, "names") == 0) rewrite(first, true, false);
    if (strcmp(question, "one_flight") == 0) {
        struct pg_span value = unhex(arguments[1]);
        one_flight(first, value);
        free((void *)value.at);
    }
    if (strcmp(question, "bind_many") == 0) bind_many(PG_PARAMETERS_MOST, PG_PARAMETERS_MOST, 1);
    if (strcmp(question, "bind_too_many") == 0) bind_many(PG_PARAMETERS_MOST + 1, 0, 0);
    if (strcmp(question, "bind_too_few") == 0) bind_many(2, 1, 0);
    if (strcmp(question, "bind_one_more") == 0) bind_many(1, 2, 0);
    if (strcmp(question, "bind_other_formats") == 0) bind_many(3, 3, 2);
    if (strcmp(question, "refusals") == 0) say_refusals();
    if (strcmp(question, "messages") == 0) say_messages(first);
    if (strncmp(question, "value_", 6) == 0) say_value(question + 6, first);
    if (strncmp(question, "put_", 4) == 0) put_text(question + 4, first);
    if (strncmp(question, "copy_out_", 9) == 0) copy_out(strstr(question, "csv"), strstr(question, "other"), first);
    if (strncmp(question, "copy_in_", 8) == 0) copy_in(strstr(question, "csv"), strstr(question, "other"), first);
    free((void *)first.at);
}

int main(void)
{
    char *line = NULL;
    size_t capacity = 0;
    while (getline(&line, &capacity, stdin) > 0) {
        char *words[8];
        int count = 0;
        for (char *word = strtok(line, " \n"); word && count < 8; word = strtok(NULL, " \n"))
            words[count++] = word;
        if (count > 0) answer(words[0], words + 1, count - 1);
        puts("");
        fflush(stdout);
    }
    free(line);
    free(buffer.at);
    return 0;
}
