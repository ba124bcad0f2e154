/* One direction of a proxied connection: bytes wait here until their shape lets them go. Knows no event loop. */
#ifndef HEDDLE_SERVER_FLOW_H
#define HEDDLE_SERVER_FLOW_H

#include "shape.h"

struct piece;

enum flow_input { INPUT_OPEN, INPUT_ENDED, INPUT_RESET };

struct flow {
    struct shape shape;
    struct piece *first, *last;
    size_t held;      /* waiting bytes, and the memory to keep them */
    uint64_t due;     /* of the last piece: later ones must not overtake it */
    uint64_t next;    /* when the pace allows the next quantum */
    uint64_t quantum; /* the rest of the current quantum */
    uint64_t passed;  /* bytes passed on since the shape was set */
    enum flow_input input;
    uint64_t input_due; /* when the end of the input is passed on */
    bool done;          /* the end was passed on */
};

enum flow_step {
    FLOW_IDLE,    /* nothing waits */
    FLOW_WAIT,    /* until *at, UINT64_MAX for ever */
    FLOW_BLOCKED, /* the receiver takes no more now */
    FLOW_BROKEN,  /* the receiver is gone */
    FLOW_END,     /* all earlier bytes were passed on: pass on the end of the input */
    FLOW_RESET,   /* the same for a reset, of the input or required by the shape */
    FLOW_CLOSE,   /* required by the shape */
    FLOW_TURN     /* more could be passed on, but other connections must have their turn */
};

/* The number of bytes that may be read now; 0 if waiting bytes must be passed on first. */
size_t flow_room(const struct flow *flow);
/* Takes bytes that came at `now`. Returns 0, or -1 without memory. */
int flow_take(struct flow *flow, const char *bytes, size_t length, uint64_t now);
/* Notes that no more bytes will come. A reset overrides an earlier end. */
void flow_input_over(struct flow *flow, enum flow_input input, uint64_t now);
/* Sends the bytes that may be passed on at `now` to the descriptor. */
enum flow_step flow_pass(struct flow *flow, int fd, uint64_t now, uint64_t *at);
/* Sets another shape for bytes still to come; counts restart. Waiting bytes keep their time. */
void flow_reshape(struct flow *flow, const struct shape *shape);
void flow_free(struct flow *flow);

#endif
