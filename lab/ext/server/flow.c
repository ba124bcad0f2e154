#include "flow.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

struct piece {
    struct piece *next;
    uint64_t due;
    size_t start, length;
    char bytes[];
};

/* The most that one direction of a connection may hold back: enough for 5 MB/s at 200 ms; beyond, the sender is
   slowed down. */
static const size_t LIMIT = 1 << 20;
static const uint64_t BYTES_A_TURN = 4 << 20;
/* A pace that fell behind by less than this (the loop was busy, the receiver full) catches up; else it restarts. */
static const uint64_t CATCH_UP = 50000000;

size_t flow_room(const struct flow *flow)
{
    return flow->held < LIMIT ? LIMIT - flow->held : 0;
}

static uint64_t due_after(const struct flow *flow, uint64_t now)
{
    uint64_t due = now + flow->shape.delay;
    if (flow->shape.jitter > 0) {
        uint64_t drawn = ((uint64_t)random() << 31 | (uint64_t)random()) % (flow->shape.jitter + 1);
        due += drawn;
    }
    return due < flow->due ? flow->due : due;
}

int flow_take(struct flow *flow, const char *bytes, size_t length, uint64_t now)
{
    struct piece *piece = malloc(sizeof *piece + length);
    if (!piece) return -1;
    *piece = (struct piece){.due = due_after(flow, now), .length = length};
    memcpy(piece->bytes, bytes, length);
    if (flow->last) {
        flow->last->next = piece;
    } else {
        flow->first = piece;
    }
    flow->last = piece;
    flow->due = piece->due;
    flow->held += sizeof *piece + length;
    return 0;
}

void flow_input_over(struct flow *flow, enum flow_input input, uint64_t now)
{
    if (flow->input >= input) return;
    flow->input = input;
    flow->input_due = due_after(flow, now);
    flow->done = false;
}

static void drop_first(struct flow *flow)
{
    struct piece *piece = flow->first;
    flow->held -= sizeof *piece + piece->start + piece->length;
    flow->first = piece->next;
    if (!flow->first) flow->last = NULL;
    free(piece);
}

/* The step that replaces the next byte, or the end, if the shape asks for one. */
static enum flow_step step_in_place(const struct flow *flow, uint64_t *at)
{
    if (flow->shape.end == SHAPE_NONE || flow->passed < flow->shape.end_at) return FLOW_TURN;
    *at = UINT64_MAX;
    if (flow->shape.end == SHAPE_STALL) return FLOW_WAIT;
    return flow->shape.end == SHAPE_RESET ? FLOW_RESET : FLOW_CLOSE;
}

/* Sends a part of the first piece. FLOW_TURN: something was sent. */
static enum flow_step send_first(struct flow *flow, int fd, uint64_t now, uint64_t *at)
{
    struct piece *piece = flow->first;
    size_t length = piece->length;

    if (flow->shape.interval > 0) {
        if (flow->quantum == 0) {
            if (now < flow->next) {
                *at = flow->next;
                return FLOW_WAIT;
            }
            if (now - flow->next > CATCH_UP) flow->next = now;
            flow->next += flow->shape.interval;
            flow->quantum = flow->shape.quantum;
        }
        if (length > flow->quantum) length = (size_t)flow->quantum;
    }
    if (flow->shape.end != SHAPE_NONE && length > flow->shape.end_at - flow->passed) {
        length = (size_t)(flow->shape.end_at - flow->passed);
    }

    ssize_t sent = send(fd, piece->bytes + piece->start, length, MSG_NOSIGNAL);
    if (sent < 0) {
        if (errno == EINTR) return FLOW_TURN;
        return errno == EAGAIN ? FLOW_BLOCKED : FLOW_BROKEN;
    }
    flow->passed += (uint64_t)sent;
    if (flow->shape.interval > 0) flow->quantum -= (uint64_t)sent;
    piece->start += (size_t)sent;
    piece->length -= (size_t)sent;
    if (piece->length == 0) drop_first(flow);
    return FLOW_TURN;
}

enum flow_step flow_pass(struct flow *flow, int fd, uint64_t now, uint64_t *at)
{
    uint64_t before = flow->passed;
    enum flow_step step;

    while (flow->first) {
        if (flow->first->due > now) {
            *at = flow->first->due;
            return FLOW_WAIT;
        }
        if ((step = step_in_place(flow, at)) != FLOW_TURN) return step;
        if (flow->passed - before > BYTES_A_TURN) return FLOW_TURN;
        if ((step = send_first(flow, fd, now, at)) != FLOW_TURN) return step;
    }
    if (flow->input == INPUT_OPEN || flow->done) return FLOW_IDLE;
    if (flow->input_due > now) {
        *at = flow->input_due;
        return FLOW_WAIT;
    }
    if ((step = step_in_place(flow, at)) != FLOW_TURN) return step;
    return flow->input == INPUT_RESET ? FLOW_RESET : FLOW_END;
}

void flow_reshape(struct flow *flow, const struct shape *shape)
{
    flow->shape = *shape;
    flow->next = flow->quantum = flow->passed = 0;
}

void flow_free(struct flow *flow)
{
    while (flow->first)
        drop_first(flow);
}
