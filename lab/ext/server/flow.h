/* One direction of a proxied connection: bytes wait here until their shape lets them go. Knows no event loop. */
#ifndef HEDDLE_SERVER_FLOW_H
#define HEDDLE_SERVER_FLOW_H

#include "shape.h"

struct piece;

enum flow_input { INPUT_OPEN, INPUT_ENDED, INPUT_RESET };

struct flow {
    struct shape shape;
    struct piece *first, *last;
    size_t held;      /* bytes that wait, and what it takes to keep them */
    uint64_t due;     /* of the last piece: later ones must not overtake it */
    uint64_t next;    /* when the pace lets the next quantum go */
    uint64_t quantum; /* what is left of the present one */
    uint64_t passed;  /* bytes that went on since the shape was set */
    enum flow_input input;
    uint64_t input_due; /* when its end is passed on */
    bool done;          /* the end was passed on */
};

enum flow_step {
    FLOW_IDLE,    /* nothing waits */
    FLOW_WAIT,    /* until *at, UINT64_MAX for ever */
    FLOW_BLOCKED, /* the receiver takes no more at present */
    FLOW_BROKEN,  /* the receiver is gone */
    FLOW_END,     /* what came before it has gone on: pass on the end of the input */
    FLOW_RESET,   /* the same for a reset, of the input or asked for by the shape */
    FLOW_CLOSE,   /* asked for by the shape */
    FLOW_TURN     /* more could go on, but others must have their turn */
};

/* How much may be read for it now; 0 when what waits must go on first. */
size_t flow_room(const struct flow *flow);
/* Takes bytes that came at `now`. Returns 0, or -1 when memory is out. */
int flow_take(struct flow *flow, const char *bytes, size_t length, uint64_t now);
/* Notes that no more will come. A reset stands, whatever was noted before. */
void flow_input_over(struct flow *flow, enum flow_input input, uint64_t now);
/* Sends what may go on at `now` to the descriptor. */
enum flow_step flow_pass(struct flow *flow, int fd, uint64_t now, uint64_t *at);
/* Gives it another shape, for what is still to come; counts begin again. What waits keeps the time it was given. */
void flow_reshape(struct flow *flow, const struct shape *shape);
void flow_free(struct flow *flow);

#endif
