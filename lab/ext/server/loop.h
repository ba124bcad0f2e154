/* The event loop: descriptors and timers; knows nothing of HTTP. */
#ifndef HEDDLE_SERVER_LOOP_H
#define HEDDLE_SERVER_LOOP_H

#ifndef __linux__
#error "the load server needs Linux: it uses epoll, signalfd and prctl"
#endif

#include "timers.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A descriptor that the loop watches. Lives inside its owner. */
struct source {
    int fd; /* -1 once closed */
    bool watched;
    void (*ready)(struct source *source, uint32_t events); /* events: epoll's bits */
    void (*release)(struct source *source);                /* frees the owner; may be NULL */
    struct source *next_closed;
};

struct loop {
    int epoll;
    bool stopped;
    bool coarse; /* without epoll_pwait2: whole milliseconds only */
    struct timers timers;
    struct source *closed; /* released at the end of the round: a later event of this round may still name them */
};

#define container_of(pointer, type, member) ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

/* CLOCK_MONOTONIC in nanoseconds. */
uint64_t loop_clock(void);
int loop_init(struct loop *loop);
/* Watches the source for epoll's `events`, or changes the events that it is watched for. Returns 0, or -1 with
   errno. */
int loop_watch(struct loop *loop, struct source *source, uint32_t events);
/* Closes the descriptor at once, and releases the owner at the end of the round; `ready` is not called any more. */
void loop_close(struct loop *loop, struct source *source);
/* Runs until loop->stopped is set. Returns 0, or -1 with errno. */
int loop_run(struct loop *loop);
void loop_free(struct loop *loop);

#endif
