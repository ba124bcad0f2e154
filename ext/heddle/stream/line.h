// Requests of several fibers in flight on one stream. Their replies come in the order of the requests, so the fibers
// stand in line: whoever is first reads. A fiber that leaves before its reply has come gives the reply up, and whoever
// reads next drops it. A request is written between two switches of fibers; the first writer lets the other ready
// fibers write, too, and sends for all of them.
//
// All fibers are those of one loop, which holds each while it sleeps: so the records stand on their stacks. What a
// request and a reply are, only the client knows. A child of fork must not touch the records, which are its parent's.
#ifndef HEDDLE_STREAM_LINE_H
#define HEDDLE_STREAM_LINE_H

#include "stream/stream.h"

struct loop;

struct stream_turns {
    struct stream_turn *first, *last;
    long count;
};

// One fiber's place in the line.
struct stream_turn {
    struct stream_turns *among; // NULL: it has left, or does not stand yet
    struct stream_turn *before, *behind;
    struct loop *loop; // NULL: it is alone, and never sleeps
    VALUE fiber;
    uint64_t number; // of its request on this line, from 1
    uint64_t begins; // where its request begins among the stream's bytes
    bool asked, answered;
    bool sleeps;
};

struct stream_line {
    struct stream_turns turns;  // those who wait for their replies
    uint64_t asked, answered;   // requests that were written, and those whose replies were read
    struct stream_turn *sender; // is about to send what all have written
};

// Stands at the end.
void stream_turn_stand(struct stream_turns *turns, struct stream_turn *turn);

// Does nothing for one that has left.
void stream_turn_leave(struct stream_turn *turn);

// Sleeps until stream_turn_wake, or until the deadline, and returns early, perhaps. `blocker`: an object for reports.
void stream_turn_sleep(struct stream_turn *turn, VALUE blocker, deadline_t until);

// Neither raises nor runs other code.
void stream_turns_wake_first(const struct stream_turns *turns);
void stream_turns_wake_all(const struct stream_turns *turns);

// The turn's request was written; it begins at that place among the stream's bytes.
void stream_line_ask(struct stream_line *line, struct stream_turn *turn, struct stream *stream, uint64_t begins);

// Lets the other ready fibers write, too, unless another fiber is just doing that.
void stream_line_gather(struct stream_line *line, struct stream_turn *turn);

// Sends what was written, unless another fiber is about to. Whoever stands in line calls this before each sleep: the
// one that was about to may have left. The first one need not, as it sends before it reads.
void stream_line_send(const struct stream_line *line, struct stream *stream);

// A reply was read: that of `turn`, which leaves, or one that was given up (NULL).
void stream_line_answer(struct stream_line *line, struct stream_turn *turn, struct stream *stream);

// However the turn ends. The next one reads; all have to know of a closed stream, and if the turn was about to send.
void stream_line_leave(struct stream_line *line, struct stream_turn *turn, bool closed);

// The number of the next reply.
static inline uint64_t stream_line_next(const struct stream_line *line)
{
    return line->answered + 1;
}

// Whether replies are owed that were given up.
static inline bool stream_line_abandoned(const struct stream_line *line)
{
    return line->asked - line->answered != (uint64_t)line->turns.count;
}

#endif
