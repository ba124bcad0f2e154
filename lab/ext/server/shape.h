/* What the proxy does to bytes on their way, and how it is asked for. Knows no socket. */
#ifndef HEDDLE_SERVER_SHAPE_H
#define HEDDLE_SERVER_SHAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What takes the place of the byte at `end_at`. */
enum shape_end {
    SHAPE_NONE,
    SHAPE_STALL, /* nothing more, and no end either */
    SHAPE_RESET,
    SHAPE_CLOSE
};

struct shape {
    uint64_t delay;  /* nanoseconds between a byte's coming and its going on */
    uint64_t jitter; /* up to so many more, drawn for each piece that comes; pieces keep their order */
    /* At most `quantum` bytes every `interval` nanoseconds; 0: as fast as it goes. */
    uint64_t quantum, interval;
    enum shape_end end;
    uint64_t end_at; /* bytes since the connection was opened, or since the shape was set */
};

struct shaping {
    struct shape requests, replies; /* one shape for both, or nothing done to one of them */
};

/* The settings of one command line, or of one control line. */
struct shape_reader {
    struct shape shape;
    bool requests, replies;
    bool paced;
};

void shape_begin(struct shape_reader *reader);
/* Takes one setting, as "delay" and "200". Returns NULL, or what is wrong with it. */
const char *shape_read(struct shape_reader *reader, const char *name, const char *value);
/* Takes a line of names and values parted by spaces, which is overwritten. Returns NULL, or what is wrong with it. */
const char *shape_read_line(struct shape_reader *reader, char *line);
void shape_finish(const struct shape_reader *reader, struct shaping *shaping);

#endif
