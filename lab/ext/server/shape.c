#include "shape.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const double LONGEST = 3600e9;              /* ns: an hour */
static const uint64_t LARGEST = UINT64_C(1) << 50; /* bytes */

static bool read_milliseconds(const char *text, uint64_t *nanoseconds)
{
    if (strspn(text, "0123456789.") != strlen(text)) return false; /* no sign, exponent, infinity or hexadecimal */
    char *end;
    errno = 0;
    double value = strtod(text, &end) * 1e6;
    if (errno || end == text || *end || value > LONGEST) return false;
    *nanoseconds = (uint64_t)value;
    return true;
}

static bool read_bytes(const char *text, uint64_t *bytes)
{
    if (strspn(text, "0123456789") != strlen(text)) return false;
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno || end == text || value > LARGEST) return false;
    *bytes = value;
    return true;
}

void shape_begin(struct shape_reader *reader)
{
    *reader = (struct shape_reader){.replies = true};
}

static const char *read_direction(struct shape_reader *reader, const char *value)
{
    bool both = strcmp(value, "both") == 0;
    reader->requests = both || strcmp(value, "requests") == 0;
    reader->replies = both || strcmp(value, "replies") == 0;
    return reader->requests || reader->replies ? NULL : "direction must be replies, requests or both";
}

static const char *read_pace(struct shape_reader *reader, bool drip, const char *value)
{
    struct shape *shape = &reader->shape;
    uint64_t number;
    if (reader->paced) return "rate and drip exclude each other, and may be given only once";
    reader->paced = true;
    if (drip) {
        if (!read_milliseconds(value, &shape->interval) || shape->interval == 0) {
            return "drip takes milliseconds from one byte to the next, above 0 and at most 3600000";
        }
        shape->quantum = 1;
        return NULL;
    }
    if (!read_bytes(value, &number) || number == 0) return "rate takes bytes a second, at least 1";
    shape->quantum = number < 200 ? 1 : number / 100; /* steps of 10 ms if that is more than a byte */
    shape->interval = (uint64_t)((double)shape->quantum * 1e9 / (double)number);
    return NULL;
}

static const char *read_end(struct shape_reader *reader, enum shape_end end, const char *value)
{
    if (reader->shape.end != SHAPE_NONE)
        return "stall-at, reset-at and close-at exclude each other, and may be given only once";
    if (!read_bytes(value, &reader->shape.end_at)) {
        return "stall-at, reset-at and close-at take a number of bytes, at most 1125899906842624";
    }
    reader->shape.end = end;
    return NULL;
}

const char *shape_read(struct shape_reader *reader, const char *name, const char *value)
{
    static const char *const times = "delay and jitter take milliseconds, at most 3600000";
    struct shape *shape = &reader->shape;
    if (strcmp(name, "delay") == 0) return read_milliseconds(value, &shape->delay) ? NULL : times;
    if (strcmp(name, "jitter") == 0) return read_milliseconds(value, &shape->jitter) ? NULL : times;
    if (strcmp(name, "rate") == 0) return read_pace(reader, false, value);
    if (strcmp(name, "drip") == 0) return read_pace(reader, true, value);
    if (strcmp(name, "stall-at") == 0) return read_end(reader, SHAPE_STALL, value);
    if (strcmp(name, "reset-at") == 0) return read_end(reader, SHAPE_RESET, value);
    if (strcmp(name, "close-at") == 0) return read_end(reader, SHAPE_CLOSE, value);
    if (strcmp(name, "direction") == 0) return read_direction(reader, value);
    return "unknown setting: use delay, jitter, rate, drip, stall-at, reset-at, close-at or direction";
}

const char *shape_read_line(struct shape_reader *reader, char *line)
{
    char *rest = NULL;
    shape_begin(reader);
    for (char *name = strtok_r(line, " \t", &rest); name; name = strtok_r(NULL, " \t", &rest)) {
        const char *value = strtok_r(NULL, " \t", &rest);
        const char *wrong = shape_read(reader, name, value ? value : "");
        if (wrong) return wrong;
    }
    return NULL;
}

void shape_finish(const struct shape_reader *reader, struct shaping *shaping)
{
    static const struct shape nothing;
    shaping->requests = reader->requests ? reader->shape : nothing;
    shaping->replies = reader->replies ? reader->shape : nothing;
}
