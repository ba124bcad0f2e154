/* The shape that the proxy gives to traffic, and the settings that describe it. Knows no socket. */
#ifndef HEDDLE_SERVER_SHAPE_H
#define HEDDLE_SERVER_SHAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What replaces the byte at `end_at`. */
enum shape_end {
    SHAPE_NONE,
    SHAPE_STALL, /* nothing more, not even an end */
    SHAPE_RESET,
    SHAPE_CLOSE
};

struct shape {
    uint64_t delay;  /* nanoseconds between receiving a byte and passing it on */
    uint64_t jitter; /* up to this many more, drawn for each piece; pieces keep their order */
    /* At most `quantum` bytes every `interval` nanoseconds; 0: as fast as possible. */
    uint64_t quantum, interval;
    enum shape_end end;
    uint64_t end_at; /* bytes since the connection was opened, or since the shape was set */
};

struct shaping {
    struct shape requests, replies; /* the same shape for both, or none for one of them */
};

/* The settings of one command line, or of one control line. */
struct shape_reader {
    struct shape shape;
    bool requests, replies;
    bool paced;
};

void shape_begin(struct shape_reader *reader);
/* Takes one setting, such as "delay" and "200". Returns NULL or an error text. */
const char *shape_read(struct shape_reader *reader, const char *name, const char *value);
/* Takes a line of names and values separated by spaces, and overwrites it. Returns NULL or an error text. */
const char *shape_read_line(struct shape_reader *reader, char *line);
void shape_finish(const struct shape_reader *reader, struct shaping *shaping);

#endif
