#include "loop/turn_record.h"

#include "loop/loop.h"

_Atomic int64_t turn_gc_time;
atomic_bool turn_watcher_rests;

static struct turn_record records[TURN_RECORDS];
static const struct turn_watcher *watching; // or NULL
int64_t turn_limit = INT64_MAX;

struct turn_record *turn_records(void)
{
    return records;
}

void turn_records_watch(const struct turn_watcher *watcher, int64_t nanoseconds)
{
    watching = nanoseconds ? watcher : NULL;
    turn_limit = watching ? nanoseconds : INT64_MAX;
}

static enum turn_phase phase_of(const struct turn_record *record)
{
    return (enum turn_phase)(atomic_load_explicit(&record->turn, memory_order_relaxed) & 3);
}

// The end of what the loop did since a poll, or since a turn.
static void phase_end(struct turn_record *record, deadline_t now)
{
    deadline_t began = record->ended;
    if (phase_of(record) == TURN_LOOP) began = atomic_load_explicit(&record->began, memory_order_relaxed);
    if (watching && began && now - began >= turn_limit) watching->over(record, TURN_LOOP, began, now);
}

bool turn_record_attach(struct loop *loop, int thread, bool runs)
{
    if (loop->turn_record) return true;
    for (int i = 0; i < TURN_RECORDS; i++) {
        struct turn_record *record = &records[i];
        if (atomic_load(&record->loop)) continue;
        record->task = loop->owner->self;
        record->number = loop->owner->number;
        atomic_store(&record->thread, thread);
        // A loop of another thread may sleep at the moment: nothing is known until its next phase begins.
        turn_record_publish(record, runs ? TURN_RUNS : TURN_LOOP, runs ? deadline_now() : 0);
        atomic_store(&record->loop, loop);
        loop->turn_record = record;
        loop->poller.woken = &record->woken;
        return true;
    }
    return false;
}

void turn_record_detach(struct loop *loop)
{
    struct turn_record *record = loop->turn_record;
    if (!record) return;
    loop->turn_record = NULL;
    loop->poller.woken = NULL;
    loop->measuring &= ~(unsigned)MEASURE_STALLS;
    turn_record_publish(record, TURN_LOOP, 0);
    record->task = 0;
    atomic_store(&record->thread, 0);
    atomic_store(&record->loop, NULL);
}

bool turn_record_enter(struct loop *loop)
{
    if (!watching || deadline_simulated() || !turn_record_attach(loop, loop->label.number, true)) return false;
    if (atomic_load(&turn_watcher_rests)) watching->woke(loop->turn_record);
    return loop->turn_record; // a child of fork forgets its parent's watch when it notices
}

void turn_records_end(void)
{
    for (int i = 0; i < TURN_RECORDS; i++) {
        struct loop *loop = atomic_load(&records[i].loop);
        if (loop) turn_record_detach(loop);
    }
    turn_records_watch(NULL, 0);
    atomic_store(&turn_watcher_rests, false);
}

void turn_record_over(struct turn_record *record, deadline_t began, deadline_t now)
{
    if (watching) watching->over(record, TURN_RUNS, began, now);
}

void turn_record_poll(struct loop *loop, deadline_t before, bool sleeps)
{
    struct turn_record *record = loop->turn_record;
    phase_end(record, before);
    record->ready_before = loop->ready_count;
    atomic_store_explicit(&record->woken, 0, memory_order_relaxed);
    turn_record_publish(record, sleeps ? TURN_SLEEPS : TURN_LOOP, before);
}

static void sleep_end(struct loop *loop, deadline_t after)
{
    struct turn_record *record = loop->turn_record;
    deadline_t woken = atomic_load(&record->woken);
    if (!woken) return; // Ruby refused to release the GVL
    deadline_t due = timer_next(&loop->timers);
    if (woken - due >= turn_limit) { // not for DEADLINE_NEVER
        watching->over(record, TURN_SLEEPS, due, after);
    } else if (after - woken >= turn_limit) {
        watching->over(record, TURN_SLEEPS, woken, after);
    }
}

void turn_record_polled(struct loop *loop, deadline_t after)
{
    struct turn_record *record = loop->turn_record;
    bool slept = phase_of(record) == TURN_SLEEPS;
    if (watching && slept) sleep_end(loop, after);
    if (watching && !slept) phase_end(record, after);
    if (watching) { // still: a child of fork forgets its parent's watch when it notices
        if (loop->ready_count > record->ready_before)
            watching->polled(record, loop->ready_count - record->ready_before);
        // Either this sees that the watcher rests, or the watcher, before it does, sees `woken`.
        if (slept && atomic_load(&turn_watcher_rests)) watching->woke(record);
    }
    turn_record_publish(record, TURN_LOOP, after);
}

void turn_record_interrupted(struct loop *loop, deadline_t now)
{
    struct turn_record *record = loop->turn_record;
    phase_end(record, now);
    turn_record_publish(record, TURN_LOOP, now);
}
