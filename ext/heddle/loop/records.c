#include "loop/records.h"

#include "cancel/chain.h"
#include "loop/loop.h"
#include "os/fork.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNK = 256, CHUNKS = 4096, READS = 100 };

struct task_record {
    uint32_t version;
    unsigned forks; // fork_count() of the process that the record belongs to
    struct task_record *next_free;
    struct task_row row;
};

struct loop_record {
    uint32_t version;
    unsigned forks;
    struct loop_record *next; // of all
    struct loop_row row;
};

static struct {
    struct task_record *chunks[CHUNKS];
    uint32_t count; // chunks
    struct task_record *unused;
    struct loop_record *loops;
    uint64_t lost;
    uint64_t loop_numbers;
    unsigned forks;
} all;

// ---- words that a native thread may read at the same time

typedef uint64_t __attribute__((may_alias)) word_t;

#define PUT(field, value) __atomic_store_n(&(field), (value), __ATOMIC_RELAXED)
#define GET(field)        __atomic_load_n(&(field), __ATOMIC_RELAXED)
// Only writers may use this: nobody else writes.
#define INCREASE(field, value) PUT(field, (field) + (value))

static inline void write_begin(uint32_t *version)
{
    PUT(*version, *version + 1);
    __atomic_thread_fence(__ATOMIC_RELEASE);
}

static inline void write_end(uint32_t *version)
{
    __atomic_store_n(version, *version + 1, __ATOMIC_RELEASE);
}

static void put_words(void *into, const void *from, size_t size)
{
    word_t *words = into;
    const word_t *values = from;
    for (size_t i = 0; i < size / sizeof(word_t); i++)
        PUT(words[i], values[i]);
}

// Returns false if the record was written again and again meanwhile, as only a stopped writer makes it.
static bool copy_words(const uint32_t *version, const void *from, void *into, size_t size)
{
    const word_t *words = from;
    word_t *values = into;
    for (int reads = 0; reads < READS; reads++) {
        uint32_t before = __atomic_load_n(version, __ATOMIC_ACQUIRE);
        for (size_t i = 0; i < size / sizeof(word_t); i++)
            values[i] = GET(words[i]);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (!(before & 1) && GET(*version) == before) return true;
    }
    return false;
}

// ---- life

// The parent's records stay where they are: owners that the parent has left point there.
static void own_records(void)
{
    if (all.forks == fork_count()) return;
    memset(&all, 0, sizeof(all));
    __atomic_store_n(&all.forks, fork_count(), __ATOMIC_RELEASE);
}

// A thread that reads may be a child's first: until then these are the parent's, and about to be cleared.
static bool records_belong(void)
{
    return __atomic_load_n(&all.forks, __ATOMIC_ACQUIRE) == fork_count();
}

static bool add_chunk(void)
{
    struct task_record *chunk = all.count < CHUNKS ? calloc(CHUNK, sizeof(*chunk)) : NULL;
    if (!chunk) return false;
    for (int i = 0; i < CHUNK; i++)
        chunk[i].next_free = i + 1 < CHUNK ? &chunk[i + 1] : NULL;
    all.unused = chunk;
    all.chunks[all.count] = chunk;
    __atomic_store_n(&all.count, all.count + 1, __ATOMIC_RELEASE);
    return true;
}

void record_open(struct wait_owner *owner, const char *name, size_t length)
{
    own_records();
    if (owner->record && owner->record->forks == fork_count()) return;
    owner->record = NULL;
    if (!all.unused && !add_chunk()) {
        PUT(all.lost, all.lost + 1);
        return;
    }
    struct task_record *record = all.unused;
    all.unused = record->next_free;
    record->forks = fork_count();
    struct task_row row = {.number = owner->number,
                           .parent = owner->parent,
                           .loop = owner->loop ? record_loop_number(owner->loop) : 0,
                           .since = deadline_now(),
                           .due = DEADLINE_NEVER,
                           .descriptor = -1,
                           .state = owner->loop && owner->loop->owner == owner ? RECORD_RUNNING : RECORD_QUEUED};
    if (name) label_copy(row.name, name, length);
    write_begin(&record->version);
    put_words(&record->row, &row, sizeof(row));
    write_end(&record->version);
    owner->record = record;
    if (owner->loop && owner->loop->record) INCREASE(owner->loop->record->row.tasks, 1);
}

static void clear(struct task_record *record)
{
    write_begin(&record->version);
    PUT(record->row.number, (uint64_t)0);
    write_end(&record->version);
}

void record_close(struct wait_owner *owner)
{
    struct task_record *record = owner->record;
    owner->record = NULL;
    if (!record || record->forks != fork_count()) return;
    own_records();
    clear(record);
    record->next_free = all.unused;
    all.unused = record;
    struct loop_record *loop = owner->loop ? owner->loop->record : NULL;
    if (loop && loop->row.tasks) INCREASE(loop->row.tasks, -1);
}

// Another Ractor may not use the list of unused records: this record stays unused.
void record_abandon(struct wait_owner *owner)
{
    if (owner->record && owner->record->forks == fork_count()) clear(owner->record);
    owner->record = NULL;
}

bool record_of(const struct wait_owner *owner, struct task_row *row)
{
    if (!owner->record || owner->record->forks != fork_count()) return false;
    *row = owner->record->row;
    return true;
}

static struct loop_record *take_loop_record(void)
{
    struct loop_record *record = all.loops;
    while (record && record->row.number)
        record = record->next;
    if (record) return record;
    record = calloc(1, sizeof(*record));
    if (!record) return NULL;
    record->next = all.loops;
    __atomic_store_n(&all.loops, record, __ATOMIC_RELEASE);
    return record;
}

void record_loop_open(struct loop *loop)
{
    own_records();
    struct loop_record *record = loop->record ? NULL : take_loop_record();
    if (!record) return;
    struct loop_row row = {.number = ++all.loop_numbers,
                           .task = loop->owner->number,
                           .began = deadline_now(),
                           .thread = loop->label.number};
    strcpy(row.name, loop->label.name[0] ? loop->label.name : "a thread");
    strncpy(row.backend, loop->poller.backend->name, sizeof(row.backend) - 1);
    record->forks = fork_count();
    write_begin(&record->version);
    put_words(&record->row, &row, sizeof(row));
    write_end(&record->version);
    loop->record = record;
}

void record_loop_close(struct loop *loop)
{
    struct loop_record *record = loop->record;
    loop->record = NULL;
    if (!record || record->forks != fork_count()) return;
    write_begin(&record->version);
    PUT(record->row.number, (uint64_t)0);
    write_end(&record->version);
}

uint64_t record_loop_number(const struct loop *loop)
{
    return loop->record ? loop->record->row.number : 0;
}

// ---- at switches

void record_park(struct loop_wait *wait)
{
    struct task_record *record = wait->owner->record;
    struct task_row *row = &record->row;
    const struct scope_chain *chain = wait->owner->chain;
    write_begin(&record->version);
    PUT(row->state, wait->kind == WAIT_YIELD ? RECORD_READY : RECORD_WAITING);
    PUT(row->kind, wait->kind);
    PUT(row->since, wait->since);
    PUT(row->descriptor, wait->kind == WAIT_DESCRIPTOR ? wait->descriptor : -1);
    PUT(row->events, wait->events);
    PUT(row->due, chain->innermost && !chain->other_fibers ? chain->innermost->limit : DEADLINE_NEVER);
    write_end(&record->version);
}

void record_ready(struct loop_wait *wait)
{
    struct task_record *record = wait->owner->record;
    write_begin(&record->version);
    PUT(record->row.state, RECORD_READY);
    PUT(record->row.since, wait->ready);
    write_end(&record->version);
}

void record_resume(struct loop_wait *wait, deadline_t now)
{
    struct task_record *record = wait->owner->record;
    write_begin(&record->version);
    if (record->row.state == RECORD_READY) INCREASE(record->row.was_ready, now - record->row.since);
    write_end(&record->version);
}

// A turn begins, of loop->owner or of the owner of the wait that ends: loop->turn.number names it.
void record_turn(struct loop *loop)
{
    struct loop_record *record = loop->record;
    write_begin(&record->version);
    PUT(record->row.task, loop->turn.number);
    PUT(record->row.began, loop->turn.began);
    PUT(record->row.ready, (uint64_t)loop->ready_count);
    PUT(record->row.switches, loop->statistics.switches);
    PUT(record->row.slept, loop->statistics.idle);
    write_end(&record->version);
    struct wait_owner *owner = loop->owner;
    if (owner->number != loop->turn.number || !owner->self) return;
    // It was listed before the loop kept records. One that is not has ended: its error is being reported, say.
    if (!owner->record && owner->listed) record_open(owner, NULL, 0);
    if (!owner->record) return;
    write_begin(&owner->record->version);
    PUT(owner->record->row.state, RECORD_RUNNING);
    PUT(owner->record->row.since, loop->turn.began);
    write_end(&owner->record->version);
}

void record_turn_end(struct loop *loop, int64_t run)
{
    PUT(loop->record->row.began, (deadline_t)0);
    struct wait_owner *owner = loop->owner;
    if (owner->number != loop->turn.number || !owner->record) return;
    write_begin(&owner->record->version);
    INCREASE(owner->record->row.ran, run);
    INCREASE(owner->record->row.turns, 1);
    write_end(&owner->record->version);
}

void record_sleep(struct loop *loop, deadline_t since)
{
    PUT(loop->record->row.asleep, since);
}

// ---- for any thread

bool record_next_task(uint32_t *from, struct task_row *row)
{
    uint32_t count = records_belong() ? __atomic_load_n(&all.count, __ATOMIC_ACQUIRE) : 0;
    while (*from < count * CHUNK) {
        const struct task_record *record = &all.chunks[*from / CHUNK][*from % CHUNK];
        ++*from;
        if (GET(record->row.number) && copy_words(&record->version, &record->row, row, sizeof(*row)) && row->number)
            return true;
    }
    return false;
}

bool record_next_loop(const struct loop_record **last, struct loop_row *row)
{
    if (!records_belong()) return false;
    const struct loop_record *record = *last ? (*last)->next : __atomic_load_n(&all.loops, __ATOMIC_ACQUIRE);
    for (; record; record = record->next) {
        *last = record;
        if (GET(record->row.number) && copy_words(&record->version, &record->row, row, sizeof(*row)) && row->number)
            return true;
    }
    return false;
}

uint64_t records_lost(void)
{
    return records_belong() ? GET(all.lost) : 0;
}
