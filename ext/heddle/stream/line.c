#include "stream/line.h"

#include "loop/park.h"
#include "loop/wake.h"

void stream_turn_stand(struct stream_turns *turns, struct stream_turn *turn)
{
    turn->among = turns;
    turn->before = turns->last;
    turn->behind = NULL;
    *(turns->last ? &turns->last->behind : &turns->first) = turn;
    turns->last = turn;
    turns->count++;
}

void stream_turn_leave(struct stream_turn *turn)
{
    struct stream_turns *turns = turn->among;
    if (!turns) return;
    *(turn->before ? &turn->before->behind : &turns->first) = turn->behind;
    *(turn->behind ? &turn->behind->before : &turns->last) = turn->before;
    turns->count--;
    turn->among = NULL;
}

void stream_turn_sleep(struct stream_turn *turn, VALUE blocker, deadline_t until)
{
    int64_t span = DEADLINE_NEVER;
    if (until != DEADLINE_NEVER) {
        span = until - deadline_now();
        if (span <= 0) return;
    }
    turn->sleeps = true;
    loop_enter(turn->loop);
    loop_block(turn->loop, blocker, span);
    turn->sleeps = false;
}

// Only fibers of the same loop wake, and none of them runs between the sleeper's last look and its sleep: no wake-up
// comes too early.
static void turn_wake(struct stream_turn *turn)
{
    if (!turn->sleeps) return;
    turn->sleeps = false;
    loop_unblock_parked(turn->loop, turn->fiber);
}

void stream_turns_wake_first(const struct stream_turns *turns)
{
    if (turns->first) turn_wake(turns->first);
}

void stream_turns_wake_all(const struct stream_turns *turns)
{
    for (struct stream_turn *turn = turns->first; turn; turn = turn->behind)
        turn_wake(turn);
}

void stream_line_ask(struct stream_line *line, struct stream_turn *turn, struct stream *stream, uint64_t begins)
{
    stream_expect(stream, 1);
    stream_end_message(stream);
    turn->asked = true;
    turn->begins = begins;
    turn->number = ++line->asked;
    stream_turn_stand(&line->turns, turn);
}

void stream_line_gather(struct stream_line *line, struct stream_turn *turn)
{
    if (line->sender) return;
    line->sender = turn;
    if (stream_gather()) line->sender = NULL;
}

void stream_line_send(const struct stream_line *line, struct stream *stream)
{
    if (!line->sender) stream_send_now(stream);
}

void stream_line_answer(struct stream_line *line, struct stream_turn *turn, struct stream *stream)
{
    stream_replied(stream, 1);
    line->answered++;
    if (!turn) return;
    turn->answered = true;
    turn_wake(turn);
    stream_turn_leave(turn);
}

void stream_line_leave(struct stream_line *line, struct stream_turn *turn, bool closed)
{
    bool interrupted = line->sender == turn;
    if (interrupted) line->sender = NULL;
    stream_turn_leave(turn);
    if (closed || interrupted) {
        stream_turns_wake_all(&line->turns);
    } else {
        stream_turns_wake_first(&line->turns);
    }
}
