#include "insight/stall_watch.h"

#include "insight/thread_usage.h"
#include "loop/loop.h"
#include "loop/park.h"
#include "loop/turn_record.h"
#include "os/fork.h"
#include "os/native_thread.h"
#include "scope/thread_scope.h"
#include "shims.h"

#include <ruby/debug.h>
#include <string.h>
#include <time.h>

enum {
    LOOKS = 4,        // in each limit
    RESTS_AFTER = 40, // looks at sleeping loops
    OTHERS = 256,     // threads whose usage is compared
    RING = 64         // stalls that are kept until they are taken
};

static const deadline_t FAR = 3600000000000;
static const int64_t LONG_IN_C = 1000000; // nanoseconds of CPU time without a place between two instructions of Ruby

// What the watcher knows of the loop with the turn_record of the same index. Under the lock.
struct watched {
    uint64_t turn;      // the one that was seen last
    deadline_t looked;  // at the last look …
    int64_t cpu, delay; // … the CPU time of the loop's thread, and its time without a processor
    deadline_t from;    // the same at the last look before the turn, or 0
    int64_t cpu_from, delay_from;
    int64_t absent;                 // nanoseconds of the turn in which the watcher should have run, and did not
    uint32_t states[THREAD_STATES]; // how often the thread was seen in each during the turn
    deadline_t next_sample;         // …
    int64_t interval;               // … and the time from one to the next
    struct thread_usage others[OTHERS];
    size_t other_count; // 0: not asked yet
    deadline_t others_at;
    int culprit; // the thread that used most CPU time since, or 0
    int64_t culprit_cpu;
};

static struct watched watched[TURN_RECORDS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed;
static bool initialized, runs, rests;
static int64_t limit, tick; // nanoseconds; `tick`: of the coarse clock
static deadline_t last_look, period;
static unsigned forks;

// The samplers of a loop: of its own thread, and of the thread that has the GVL meanwhile.
static struct sampler *own_sampler(size_t index)
{
    return &samplers()[2 * index];
}

static struct sampler *culprit_sampler(size_t index)
{
    return &samplers()[2 * index + 1];
}

// ---- looking, in the native thread

static void begin_turn(struct watched *each, size_t index, uint64_t turn)
{
    each->turn = turn;
    each->from = each->looked;
    each->cpu_from = each->cpu;
    each->delay_from = each->delay;
    each->absent = 0;
    memset(each->states, 0, sizeof(each->states));
    each->next_sample = 0;
    each->other_count = 0;
    each->culprit = 0;
    each->culprit_cpu = 0;
    sampler_end(own_sampler(index));
    sampler_end(culprit_sampler(index));
    own_sampler(index)->used = culprit_sampler(index)->used = 0;
}

// Which thread has used most CPU time since the first call for this turn.
static void find_culprit(struct watched *each, int own, deadline_t now)
{
    struct thread_usage usages[OTHERS];
    size_t count = thread_usages(usages, OTHERS);
    if (!each->other_count) {
        memcpy(each->others, usages, sizeof(usages));
        each->other_count = count;
        each->others_at = now;
        return;
    }
    each->culprit = 0;
    each->culprit_cpu = (now - each->others_at) / 8; // at least
    for (size_t i = 0; i < count; i++) {
        if (usages[i].thread == own) continue;
        for (size_t j = 0; j < each->other_count; j++) {
            int64_t used = usages[i].cpu - each->others[j].cpu;
            if (each->others[j].thread != usages[i].thread || used <= each->culprit_cpu) continue;
            each->culprit = usages[i].thread;
            each->culprit_cpu = used;
        }
    }
}

static void observe_culprit(struct watched *each, size_t index, int own, deadline_t now)
{
    struct sampler *sampler = culprit_sampler(index);
    find_culprit(each, own, now);
    if (!each->culprit) return;
    bool another = atomic_load(&sampler->thread) != each->culprit || !sampler->used;
    if (another && !sampler_begin(sampler, each->culprit, NULL, 0)) return;
    sampler_ask(sampler, now);
}

static void observe(struct watched *each, size_t index, const struct turn_record *record, deadline_t now)
{
    int thread = atomic_load(&record->thread);
    enum thread_state state = thread_state(thread);
    bool regains = (each->turn & 3) == TURN_SLEEPS; // the GVL after a poll: nobody computes in this loop
    each->states[regains ? THREAD_LOCK : state]++;
    if (regains || state == THREAD_LOCK) observe_culprit(each, index, thread, now);
    if (regains) return;
    struct sampler *sampler = own_sampler(index);
    if (!each->next_sample && !sampler_begin(sampler, thread, (_Atomic uint64_t *)&record->turn, each->turn)) return;
    if (!each->next_sample) each->interval = period / 2;
    if (now < each->next_sample && !atomic_load(&sampler->asked)) return;
    if (now >= each->next_sample) each->next_sample = now + each->interval;
    if (!sampler_ask(sampler, now)) each->interval *= 2;
}

static void note_times(struct watched *each, const struct turn_record *record, deadline_t now)
{
    int thread = atomic_load(&record->thread);
    each->cpu = thread_cpu(thread);
    each->delay = thread_delay(thread);
    each->looked = now;
}

// Whether the loop is in a poll without the GVL, or there is none.
static bool sleeps(const struct turn_record *record)
{
    if (!atomic_load(&record->loop)) return true;
    uint64_t turn = atomic_load(&record->turn);
    return (turn & 3) == TURN_SLEEPS && !atomic_load(&record->woken) && atomic_load(&record->turn) == turn;
}

static bool all_sleep(void)
{
    size_t i = 0;
    while (i < TURN_RECORDS && sleeps(&turn_records()[i]))
        i++;
    return i == TURN_RECORDS;
}

static void look_at(size_t index, deadline_t now, int64_t late)
{
    const struct turn_record *record = &turn_records()[index];
    struct watched *each = &watched[index];
    if (!atomic_load(&record->loop)) return;
    uint64_t turn = atomic_load_explicit(&record->turn, memory_order_acquire);
    bool polls = (turn & 3) == TURN_SLEEPS;
    deadline_t since = polls ? atomic_load(&record->woken) : atomic_load(&record->began);
    if (atomic_load(&record->turn) != turn) return;
    if (turn != each->turn) begin_turn(each, index, turn);
    if (since && late > 0) each->absent += late < now - since ? late : now - since;
    if (since && now - since >= limit / 2) observe(each, index, record, now);
    note_times(each, record, now);
}

static void *watch(void *unused)
{
    (void)unused;
    uint32_t asleep = 0;
    pthread_mutex_lock(&lock);
    deadline_t due = deadline_real();
    while (limit) {
        deadline_t now = deadline_real();
        if (now >= due) {
            for (size_t i = 0; i < TURN_RECORDS; i++)
                look_at(i, now, now - due > period ? now - due : 0);
            asleep = all_sleep() ? asleep + 1 : 0;
            last_look = now;
            due = now + period;
        }
        atomic_store(&turn_watcher_rests, asleep >= RESTS_AFTER);
        rests = asleep >= RESTS_AFTER && all_sleep(); // a loop that has begun or woken since does not tell
        native_condition_wait(&changed, &lock, rests ? now + FAR : due);
        if (rests) due = deadline_real(), asleep = 0;
        rests = false;
    }
    atomic_store(&turn_watcher_rests, false);
    runs = false;
    pthread_mutex_unlock(&lock);
    return NULL;
}

// ---- the stalls, with the GVL

static struct stall ring[RING];
static size_t first, count;
static uint64_t lost;
static VALUE reporter;       // the thread in stall_wait, or 0
static struct stall *latest; // gets those that the next poll finds; or NULL

struct stall *stall_first(void)
{
    return count ? &ring[first] : NULL;
}

void stall_take(void)
{
    if (latest == &ring[first]) latest = NULL;
    first = (first + 1) % RING;
    count--;
}

uint64_t stalls_lost(void)
{
    return lost;
}

// A place for another stall, cleared; or NULL.
static struct stall *stall_new(void)
{
    if (count == RING) {
        lost++;
        return NULL;
    }
    struct stall *stall = &ring[(first + count) % RING];
    memset(stall, 0, sizeof(*stall));
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    stall->ended = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    return stall;
}

static void stall_add(void)
{
    count++;
    stall_wake();
}

static VALUE sleep_for(VALUE argument)
{
    int64_t span = *(const int64_t *)argument;
    if (span == DEADLINE_NEVER) {
        rb_thread_sleep_deadly(); // Ruby is still to find deadlocks
    } else {
        rb_thread_wait_for((struct timeval){.tv_sec = span / 1000000000, .tv_usec = span % 1000000000 / 1000});
    }
    return Qnil;
}

// The sleeps of a program's block, which takes the reports in this thread, are its own.
static VALUE sleeps_no_longer(VALUE thread)
{
    if (reporter == thread) reporter = 0;
    return Qnil;
}

void stall_wait(int64_t span)
{
    if (count) return;
    reporter = rb_thread_current();
    rb_ensure(sleep_for, (VALUE)&span, sleeps_no_longer, reporter);
}

void stall_wake(void)
{
    if (reporter) rb_thread_wakeup_alive(reporter);
}

static void add_waiter(struct stall *stall, const struct loop_wait *wait, int64_t length)
{
    if (!wait->owner->self) return; // the caller of a run, and fibers between two tasks
    stall->waited++;
    size_t shortest = STALL_WAITERS - 1; // the list is in order
    if (stall->waiters[shortest].length >= length) return;
    for (; shortest > 0 && stall->waiters[shortest - 1].length < length; shortest--)
        stall->waiters[shortest] = stall->waiters[shortest - 1];
    stall->waiters[shortest].task = wait->owner->self;
    stall->waiters[shortest].number = wait->owner->number;
    stall->waiters[shortest].length = length;
}

// Those that were ready all the time, and those whose time was over meanwhile. At most so many are looked at.
static void add_waiters(struct stall *stall, const struct loop *loop, deadline_t now)
{
    enum { LOOKED_AT = 1000 };
    int left = LOOKED_AT;
    for (const struct loop_wait *wait = loop->ready.head; wait && left--; wait = wait->next) {
        int64_t length = now - wait->since < stall->length ? now - wait->since : stall->length;
        if (wait->owner->number != stall->number) add_waiter(stall, wait, length);
    }
    for (uint32_t i = 0; i < loop->timers.size && left-- > 0; i++) {
        const struct timer *timer = loop->timers.nodes[i];
        const struct loop_wait *wait = wait_of_timer(timer);
        if (wait && wait->state == WAIT_PARKED && timer->at < now) add_waiter(stall, wait, now - timer->at);
    }
}

// Of the samples of a turn, the place where most of its time was: of one place the last sample.
static void choose_frames(struct stall *stall, const struct sampler *sampler, deadline_t now)
{
    int chosen = -1;
    int64_t most = -1;
    for (int i = 0; i < sampler->used; i++) {
        const struct frames *frames = &sampler->samples[i].frames;
        if (!atomic_load(&frames->count)) continue;
        int64_t here = 0;
        for (int j = 0; j < sampler->used; j++) {
            const struct frames *other = &sampler->samples[j].frames;
            if (!atomic_load(&other->count) || other->of[0] != frames->of[0]) continue;
            here += (j + 1 < sampler->used ? sampler->samples[j + 1].asked : now) - sampler->samples[j].asked;
        }
        if (here < most) continue;
        most = here;
        chosen = i;
    }
    if (chosen < 0) return;
    const struct frames *frames = &sampler->samples[chosen].frames;
    memcpy(stall->frames.of, frames->of, sizeof(frames->of));
    memcpy(stall->frames.lines, frames->lines, sizeof(frames->lines));
    atomic_store(&stall->frames.count, atomic_load(&frames->count));
}

// Whether C code held the GVL: Ruby reached no place between two instructions for a while. A regular expression does,
// for Ruby's sake; the signal found only part of the code that it runs.
static bool in_c(const struct sampler *sampler)
{
    int c = 0, ruby = 0;
    for (int i = 0; i < sampler->used; i++) {
        const struct sample *sample = &sampler->samples[i];
        if (atomic_load(&sample->in_regexp)) {
            c += 3;
        } else if (!atomic_load(&sample->reached) || atomic_load(&sample->used) >= LONG_IN_C) {
            c++;
        } else {
            ruby++;
        }
    }
    return c > ruby;
}

// What the thread did not compute in. `regains`: it waited for the GVL after a sleep.
static enum stall_reason idle_reason(const struct watched *each, bool slept, bool regains, int64_t delay, int64_t least)
{
    const uint32_t *states = each->states;
    if (each->absent >= least || delay >= least || (slept && !regains)) return STALL_KERNEL;
    if (regains) return STALL_GVL;
    if (states[THREAD_STOPPED] + states[THREAD_READY] > states[THREAD_LOCK] + states[THREAD_CALL]) return STALL_KERNEL;
    if (states[THREAD_CALL] > states[THREAD_LOCK]) return STALL_BLOCKED;
    return each->culprit ? STALL_GVL : states[THREAD_LOCK] ? STALL_BLOCKED : STALL_KERNEL;
}

// What the watcher saw, for a stall that began at `since`.
static void judge(struct stall *stall, const struct turn_record *record, enum turn_phase phase, deadline_t since,
                  deadline_t now)
{
    size_t index = (size_t)(record - turn_records());
    struct watched *each = &watched[index];
    struct sampler *own = own_sampler(index), *culprit = culprit_sampler(index);
    bool readable = sampler_end(culprit), slept = phase == TURN_SLEEPS;
    sampler_end(own); // its only other writer is this thread
    uint64_t turn = atomic_load(&record->turn);
    if (each->turn != turn) begin_turn(each, index, turn);
    if (now - last_look > 2 * period && !rests) each->absent += now - last_look - period;
    int thread = atomic_load(&record->thread);
    int64_t cpu = each->from ? thread_cpu(thread) - each->cpu_from : -1;
    int64_t delay = each->from ? thread_delay(thread) - each->delay_from : -1;
    if (cpu > 0 && since > each->from) cpu -= since - each->from < cpu ? since - each->from : cpu; // at least
    stall->cpu = slept ? 0 : cpu < stall->length ? cpu : stall->length;
    if (each->other_count) find_culprit(each, thread, now);
    // What computes for the limit alone is the cause also beside a busy machine.
    const uint32_t *seen = each->states;
    bool ready = seen[THREAD_READY] > seen[THREAD_LOCK] + seen[THREAD_CALL] + seen[THREAD_STOPPED];
    bool delayed = delay >= (stall->length - stall->cpu) / 2 || (ready && each->absent < stall->length / 2);
    bool computed = stall->cpu >= stall->length / 2 || (stall->cpu >= limit && delayed);
    if (stall->gc >= (computed ? stall->cpu / 4 * 3 : stall->length / 2)) {
        stall->reason = STALL_GC;
    } else if (stall->cpu >= 0 && !computed) {
        bool regains = slept && since == atomic_load(&record->woken);
        stall->reason = idle_reason(each, slept, regains, delay, (stall->length - stall->cpu) / 2);
    } else {
        stall->reason = in_c(own) ? STALL_NATIVE : STALL_RUBY;
    }
    if (stall->reason != STALL_GVL) {
        choose_frames(stall, own, now);
    } else {
        stall->culprit = each->culprit;
        if (!stall->culprit && culprit->used) stall->culprit = atomic_load(&culprit->thread);
        if (readable) choose_frames(stall, culprit, now);
    }
}

static void own_process(void)
{
    if (forks == fork_count()) return;
    stall_watch_forked();
}

static void over(struct turn_record *record, enum turn_phase phase, deadline_t since, deadline_t unused)
{
    (void)unused;
    own_process();
    deadline_t now = deadline_real();
    int64_t length = now - since - (phase == TURN_SLEEPS ? 0 : tick); // the coarse clock may have been late
    if (!limit || length < limit) return;
    struct stall *stall = stall_new();
    if (!stall) return;
    const struct loop *loop = atomic_load(&record->loop);
    stall->length = length;
    stall->gc = atomic_load(&turn_gc_time) - record->gc_before;
    stall->thread = loop->thread;
    if (phase == TURN_RUNS) {
        stall->task = record->task;
        stall->number = record->number;
    }
    pthread_mutex_lock(&lock);
    judge(stall, record, phase, since, now);
    pthread_mutex_unlock(&lock);
    bool here = phase == TURN_RUNS && loop->owner->number == stall->number;
    if (!atomic_load(&stall->frames.count) && here && stall->reason != STALL_GVL) frames_take(&stall->frames);
    add_waiters(stall, loop, now);
    latest = stall;
    stall_add();
}

static void polled(struct turn_record *record, uint32_t found)
{
    if (!latest) return;
    struct stall *stall = latest;
    latest = NULL;
    const struct loop *loop = atomic_load(&record->loop);
    if (stall->thread != loop->thread) return;
    const struct loop_wait *wait = loop->ready.tail;
    for (; wait && found; wait = wait->prev, found--)
        if (wait->kind == WAIT_DESCRIPTOR || wait->kind == WAIT_SELECT) add_waiter(stall, wait, stall->length);
}

static void woke(struct turn_record *record)
{
    own_process();
    pthread_mutex_lock(&lock);
    last_look = deadline_real();
    note_times(&watched[record - turn_records()], record, last_look);
    atomic_store(&turn_watcher_rests, false);
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
}

static const struct turn_watcher watcher = {.over = over, .polled = polled, .woke = woke};

// ---- GC

static bool gc_hooked;
static int64_t gc_began; // CPU time: GC also waits for a processor

static void note_gc(rb_event_flag_t event, VALUE data, VALUE self, ID method, VALUE klass)
{
    (void)data, (void)self, (void)method, (void)klass;
    if (event == RUBY_INTERNAL_EVENT_GC_ENTER) {
        gc_began = thread_own_cpu();
    } else if (gc_began) {
        atomic_fetch_add(&turn_gc_time, thread_own_cpu() - gc_began);
        gc_began = 0;
    }
}

// Not a TracePoint: at the end of the program Ruby's last GC frees that, and crashes when it then tells the TracePoint
// of its own end. Threads that are killed then may stop one of several watches, which sets the limit of the others.
static void hook_gc(bool on)
{
    if (on && !gc_hooked) {
        rb_add_event_hook(note_gc, RUBY_INTERNAL_EVENT_GC_ENTER | RUBY_INTERNAL_EVENT_GC_EXIT, Qnil);
    } else if (!on && gc_hooked) {
        rb_remove_event_hook(note_gc);
    }
    gc_hooked = on;
}

// ---- plain threads

static void missed(VALUE thread, int64_t late, VALUE place)
{
    struct stall *stall = stall_new();
    if (!stall) return;
    stall->reason = STALL_DEADLINE;
    stall->length = late;
    stall->cpu = -1;
    stall->thread = thread;
    stall->place = place;
    stall_add();
}

// ---- life

void stall_watch_forked(void)
{
    forks = fork_count();
    pthread_mutex_init(&lock, NULL);
    native_condition_init(&changed);
    initialized = true;
    runs = rests = false;
    limit = 0;
    memset(watched, 0, sizeof(watched));
    memset(samplers(), 0, SAMPLERS * sizeof(struct sampler));
    turn_records_end();
    count = 0;
    lost = 0;
    latest = NULL;
    reporter = 0;
}

static int64_t coarse_tick(void)
{
    struct timespec resolution = {0};
#ifdef HEDDLE_HAS_COARSE_CLOCK
    clock_getres(CLOCK_MONOTONIC_COARSE, &resolution);
#endif
    return resolution.tv_nsec;
}

// A watcher that is about to end looks at the limit once more, under the lock.
static int set_limit(int64_t wanted)
{
    int error = 0;
    pthread_mutex_lock(&lock);
    tick = coarse_tick();
    limit = wanted;
    period = wanted / LOOKS;
    last_look = deadline_real();
    if (limit && !runs) error = native_thread_start(watch, 128 << 10);
    if (error) limit = 0;
    if (limit) runs = true;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
    return error;
}

void stall_watch_set(int64_t wanted)
{
    own_process();
    if (!initialized) stall_watch_forked();
    bool was_on = limit;
    int error = set_limit(wanted);
    if (limit && !was_on) sampler_start();
    thread_scope_watch_misses(limit ? missed : NULL, limit);
    if (limit) {
        turn_records_watch(&watcher, limit);
    } else {
        turn_records_end();
        if (was_on) sampler_stop();
        samplers_forget();
    }
    hook_gc(limit);
    if (error) rb_raise(rb_eThreadError, "cannot start the thread that watches for stalls: %s", strerror(error));
}

void stall_watch_loop(struct loop *loop, int thread)
{
    measuring_watch(loop, thread);
}

void stall_watch_mark(void)
{
    sampler_mark();
    if (reporter) rb_gc_mark(reporter);
    for (size_t i = 0; i < TURN_RECORDS; i++) {
        VALUE task = turn_records()[i].task;
        if (task) rb_gc_mark(task);
    }
    for (size_t i = 0; i < count; i++) {
        const struct stall *stall = &ring[(first + i) % RING];
        int frames = atomic_load(&stall->frames.count);
        for (int frame = 0; frame < frames; frame++)
            rb_gc_mark(stall->frames.of[frame]);
        rb_gc_mark(stall->task ? stall->task : Qnil);
        rb_gc_mark(stall->thread);
        rb_gc_mark(stall->place ? stall->place : Qnil);
        for (size_t waiter = 0; waiter < STALL_WAITERS; waiter++)
            if (stall->waiters[waiter].task) rb_gc_mark(stall->waiters[waiter].task);
    }
}
