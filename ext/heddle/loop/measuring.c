#include "loop/measuring.h"

#include "loop/loop.h"
#include "loop/trace.h"
#include "loop/turn_record.h"
#include "os/fork.h"

#include <stdlib.h>
#include <string.h>

// ---- which loops measure what

static unsigned wanted;             // of all loops of the process
static struct loop_statistics past; // of loops that have closed
static struct loop_times past_times;
static unsigned forks; // fork_count() of the process that these belong to

static void own_numbers(void)
{
    if (forks == fork_count()) return;
    memset(&past, 0, sizeof(past));
    memset(&past_times, 0, sizeof(past_times));
    wanted &= ~(unsigned)MEASURE_TRACE; // the parent's file
    forks = fork_count();
}

void measuring_allocate(struct loop *loop)
{
    if (loop->times) return;
    loop->times = calloc(1, sizeof(*loop->times));
    if (!loop->times) rb_memerror();
}

static void set_bits(struct loop *loop, unsigned bits, bool on)
{
    unsigned before = loop->measuring;
    loop->measuring = on ? before | bits : before & ~bits;
    if (before || !on) return;
    // In the middle of a turn, or of a poll, whose end corrects this.
    loop->turn.began = loop->turn.now = deadline_now();
    loop->turn.number = loop->owner->number;
}

void measuring_set_one(struct loop *loop, unsigned bits, bool on)
{
    if (on && bits & MEASURE_TIMES) measuring_allocate(loop);
    set_bits(loop, bits, on);
}

void measuring_want(unsigned bits, bool on)
{
    own_numbers();
    wanted = on ? wanted | bits : wanted & ~bits;
}

unsigned measuring_bits(void)
{
    own_numbers();
    return wanted;
}

void measuring_enter(struct loop *loop)
{
    own_numbers();
    if (wanted & MEASURE_TIMES) measuring_allocate(loop);
    if (wanted & MEASURE_TRACE) trace_attach(loop);
    if (wanted) set_bits(loop, wanted, true);
    if (wanted & MEASURE_RECORDS) record_loop_open(loop);
    if (turn_record_enter(loop)) set_bits(loop, MEASURE_STALLS, true);
}

bool measuring_watch(struct loop *loop, int thread)
{
    if (!turn_record_attach(loop, thread, loop->thread == rb_thread_current())) return false;
    set_bits(loop, MEASURE_STALLS, true);
    return true;
}

// ---- numbers of the process

static void add_statistics(struct loop_statistics *sum, const struct loop *loop)
{
    const struct loop_statistics *more = &loop->statistics;
    sum->switches += more->switches;
    sum->polls += more->polls;
    sum->empty_polls += more->empty_polls;
    sum->sleeps += more->sleeps;
    for (int kind = 0; kind < WAIT_KINDS; kind++)
        sum->waits[kind] += more->waits[kind];
    sum->system_calls += more->system_calls + loop->poller.system_calls;
    sum->spawned += more->spawned;
    sum->reused += more->reused;
    sum->retired += more->retired;
    for (int end = 0; end < LOOP_ENDS; end++)
        sum->ended[end] += more->ended[end];
    sum->idle += more->idle;
    if (more->longest_run > sum->longest_run) sum->longest_run = more->longest_run;
}

static void merge_times(struct loop_times *sum, const struct loop_times *more)
{
    histogram_merge(&sum->run, &more->run);
    histogram_merge(&sum->lag, &more->lag);
    for (int kind = 0; kind < WAIT_KINDS; kind++)
        histogram_merge(&sum->wait[kind], &more->wait[kind]);
}

void measuring_leave(struct loop *loop)
{
    own_numbers();
    add_statistics(&past, loop);
    if (loop->times) merge_times(&past_times, loop->times);
    record_loop_close(loop);
    loop->measuring = 0;
    turn_record_detach(loop);
    trace_leave(loop);
}

void measuring_free(struct loop *loop)
{
    turn_record_detach(loop);
    free(loop->times);
    loop->times = NULL;
}

void measuring_discard(struct loop *loop)
{
    memset(&loop->statistics, 0, sizeof(loop->statistics));
    loop->sleeps_since = 0;
    loop->poller.system_calls = 0;
    if (loop->times) memset(loop->times, 0, sizeof(*loop->times));
    loop->measuring &= ~(unsigned)MEASURE_TRACE;
    turn_record_detach(loop);
    loop->trace = NULL;
    loop->turn = (struct loop_turn){0};
    loop->record = NULL; // the parent's
}

void measuring_past(struct loop_statistics *statistics, struct loop_times *times)
{
    own_numbers();
    *statistics = past;
    memset(times, 0, sizeof(*times));
    merge_times(times, &past_times);
}

void measuring_add(const struct loop *loop, struct loop_statistics *statistics, struct loop_times *times)
{
    add_statistics(statistics, loop);
    if (loop->sleeps_since) statistics->idle += deadline_now() - loop->sleeps_since;
    if (loop->times) merge_times(times, loop->times);
}

// ---- turns

// Stalls alone are measured by the kernel's last tick, at a quarter of the price.
static deadline_t turn_clock(const struct loop *loop)
{
    return loop->measuring == MEASURE_STALLS ? deadline_recently() : deadline_now();
}

static void trace(struct loop *loop, const struct trace_event *event)
{
    trace_put(loop->trace, event, NULL, 0);
}

// Code outside of any task may run for as long as it likes while no other fiber waits for something. `parks`: its own
// wait, which is counted already, or NULL.
static bool outside(const struct loop *loop, const struct loop_wait *parks)
{
    if (loop->turn.number != loop->root->number) return false;
    size_t waiting = loop->wakeable + loop->ready_count;
    size_t own = !parks || parks->kind == WAIT_BLOCK ? 0 : parks->state == WAIT_READY ? 2 : 1;
    return waiting <= own;
}

static void turn_end(struct loop *loop, deadline_t now, const struct loop_wait *parks)
{
    int64_t run = now - loop->turn.began;
    deadline_t began = loop->turn.began;
    loop->turn.began = 0;
    loop->turn.now = now;
    if (!began) return;
    if (loop->record) record_turn_end(loop, run);
    if (loop->measuring & MEASURE_STALLS) loop->turn_record->ended = now;
    if (loop->measuring == MEASURE_STALLS && run < turn_limit) return;
    if (loop->trace)
        trace(loop,
              &(struct trace_event){.at = now - run, .kind = TRACE_TURN, .task = loop->turn.number, .first = run});
    if (outside(loop, parks)) return;
    if (loop->measuring & MEASURE_STALLS && run >= turn_limit) turn_record_over(loop->turn_record, began, now);
    if (loop->measuring & MEASURE_LONGEST && run > loop->statistics.longest_run) loop->statistics.longest_run = run;
    if (loop->measuring & MEASURE_TIMES) histogram_add(&loop->times->run, run);
}

static void turn_begin(struct loop *loop, const struct wait_owner *owner)
{
    loop->turn.began = loop->turn.now;
    loop->turn.number = owner->number;
    if (loop->record) record_turn(loop);
    if (loop->measuring & MEASURE_STALLS) turn_record_begin(loop->turn_record, owner, loop->turn.now);
}

void measure_park(struct loop *loop, struct loop_wait *wait)
{
    if (wait->measured) return;
    wait->measured = true;
    turn_end(loop, turn_clock(loop), wait);
    wait->since = loop->turn.now;
    if (wait->owner->record) record_park(wait);
    if (wait->kind == WAIT_YIELD) wait->ready = loop->turn.now;
}

void measure_ready(struct loop *loop, struct loop_wait *wait)
{
    if (wait->kind == WAIT_YIELD) return; // measure_park is about to come
    if (loop->measuring == MEASURE_STALLS) return;
    deadline_t now = deadline_now();
    // A timer was due when the fiber should have run: that it was looked at late is the loop's lag.
    wait->ready = wait->timed_out && wait->timer.at < now ? wait->timer.at : now;
    if (wait->owner->record) record_ready(wait);
    if (!loop->trace || !wait->measured) return;
    trace(loop, &(struct trace_event){.at = now,
                                      .kind = TRACE_WAKE,
                                      .task = wait->owner->number,
                                      .first = wait->since,
                                      .second = loop->turn.began ? loop->turn.number : 0});
}

void measure_trace_wait(struct loop *loop, const struct loop_wait *wait, deadline_t now)
{
    trace(loop, &(struct trace_event){.at = now,
                                      .kind = TRACE_WAIT,
                                      .what = wait->kind,
                                      .task = wait->owner->number,
                                      .first = wait->since,
                                      .second = (uint64_t)wait->ready,
                                      .descriptor = wait->descriptor});
}

void measure_resume(struct loop *loop, struct loop_wait *wait)
{
    if (loop->turn.began) turn_end(loop, turn_clock(loop), NULL);
    deadline_t now = loop->turn.now;
    if (wait->measured && loop->measuring & MEASURE_TIMES) {
        if (wait->ready) histogram_add(&loop->times->lag, now - wait->ready);
        if (wait->kind != WAIT_YIELD && wait->kind != WAIT_IDLE)
            histogram_add(&loop->times->wait[wait->kind], (wait->ready ? wait->ready : now) - wait->since);
    }
    if (wait->measured && loop->trace && wait->kind != WAIT_IDLE) measure_trace_wait(loop, wait, now);
    if (wait->measured && wait->owner->record) record_resume(wait, now);
    wait->measured = false;
    turn_begin(loop, wait->owner);
}

void measure_thrown(struct loop *loop, struct loop_wait *wait)
{
    turn_end(loop, turn_clock(loop), NULL);
    measure_resume(loop, wait);
}

void measure_start(struct loop *loop)
{
    if (loop->turn.began && loop->turn.number == loop->owner->number) return;
    if (loop->turn.began) turn_end(loop, turn_clock(loop), NULL);
    turn_begin(loop, loop->owner);
}

void measure_poll(struct loop *loop, deadline_t before, bool sleeps)
{
    if (loop->turn.began) turn_end(loop, before, NULL);
    if (loop->record && sleeps) record_sleep(loop, before);
    if (loop->measuring & MEASURE_STALLS) turn_record_poll(loop, before, sleeps);
}

void measure_polled(struct loop *loop, deadline_t before, deadline_t after, bool slept)
{
    if (loop->trace)
        trace(loop, &(struct trace_event){.at = before, .kind = TRACE_POLL, .first = after - before, .what = slept});
    loop->turn.began = 0;
    loop->turn.now = after;
    if (loop->record) record_sleep(loop, 0);
    if (loop->measuring & MEASURE_STALLS) turn_record_polled(loop, after);
}

void measure_interrupted(struct loop *loop)
{
    loop->turn.began = 0;
    loop->turn.now = turn_clock(loop);
    if (loop->measuring & MEASURE_STALLS) turn_record_interrupted(loop, loop->turn.now);
}
