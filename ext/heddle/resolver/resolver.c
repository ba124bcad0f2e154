#include "resolver/resolver.h"

#include "os/deadline.h"
#include "resolver/question.h"
#include "os/fork.h"
#include "os/native_thread.h"

#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    THREADS = 32,              // most threads, not counting those with slow names
    ALL_THREADS = 256,         // most threads in all
    SLOW = 500000000,          // nanoseconds: other names must not wait for the thread of a name that takes longer
    IDLE_SECONDS = 2,          // after which an idle thread ends
    STACK_BYTES = 1024 * 1024, // of a thread; modules of nsswitch.conf may need some
    BUCKETS = 256,             // of the table of jobs; a power of two
};

enum job_state { JOB_QUEUED, JOB_RUNNING, JOB_DONE };

// One question. A job is in the table from its first asker until it is done, and longer while its answer is kept.
struct job {
    atomic_int references; // the table's, and one for each asker
    struct job *chain;     // next in its bucket
    struct job *next;      // in the queue; among running jobs that are not slow; once done, among cached answers
    struct job *prev;      // among running jobs that are not slow
    deadline_t started;
    bool slow;
    struct lookup *askers; // guarded by the lock
    enum job_state state;  // guarded by the lock
    atomic_bool answered;
    deadline_t valid_until; // of a cached answer
    struct answer answer;
    // The question: the bytes after `size` identify the job.
    size_t size;
    struct question question;
};

struct lookup {
    struct wakeup_note note; // first: a note is cast to its lookup
    atomic_int references;   // the asker's, and the note's
    struct job *job;
    struct wakeup *wakeup;      // while the asker waits for the answer
    struct lookup *prev, *next; // askers of the same job
    unsigned fork_count;
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t arrived;
    struct job *table[BUCKETS];
    struct job *head, *tail;               // queued
    struct job *quick_head, *quick_tail;   // running and not slow, in order of their start
    int slow;                              // running and slow
    bool watched;                          // a thread watches, while jobs are queued for lack of a thread
    struct job *cached_head, *cached_tail; // cached answers, oldest first
    int cached;
    int queued;
    int threads;
    int idle;
    unsigned fork_count;
    uint64_t answers[2]; // look-ups that found something, and others
    int64_t caches;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .arrived = PTHREAD_COND_INITIALIZER};

static resolver_ask simulated; // or NULL

// ---- jobs, and the askers' shares in them

static void job_release(struct job *job)
{
    if (atomic_fetch_sub(&job->references, 1) > 1) return;
    free(job->answer.addresses);
    free(job->answer.host);
    free(job->answer.service);
    free(job);
}

static void lookup_release(struct lookup *lookup)
{
    if (atomic_fetch_sub(&lookup->references, 1) > 1) return;
    job_release(lookup->job);
    free(lookup);
}

static void drop_note(struct wakeup_note *note)
{
    lookup_release((struct lookup *)note);
}

static struct lookup *lookup_new(const struct question *question, size_t size)
{
    struct lookup *lookup = calloc(1, sizeof(*lookup));
    size_t whole = offsetof(struct job, question) + size;
    struct job *job = lookup ? calloc(1, whole < sizeof(*job) ? sizeof(*job) : whole) : NULL;
    if (!job) {
        free(lookup);
        return NULL;
    }
    atomic_store(&job->references, 1);
    atomic_store(&lookup->references, 1);
    job->size = size;
    memcpy(&job->question, question, size);
    lookup->job = job;
    lookup->fork_count = fork_count();
    lookup->note.drop = drop_note;
    return lookup;
}

struct lookup *lookup_name(const char *host, int family)
{
    size_t length = strlen(host), size = offsetof(struct question, host) + length + 1;
    struct question *question = calloc(1, size < sizeof(*question) ? sizeof(*question) : size);
    if (!question) return NULL;
    question->family_or_flags = family;
    memcpy(question->host, host, length);
    // Host names are case-insensitive; interface names are not.
    for (char *at = question->host; *at && *at != '%'; at++) {
        if (*at >= 'A' && *at <= 'Z') *at |= 0x20;
    }
    struct lookup *lookup = lookup_new(question, size);
    free(question);
    return lookup;
}

struct lookup *lookup_address(const struct sockaddr *address, socklen_t length, int flags)
{
    struct question question = {.length = length, .family_or_flags = flags};
    if (length > sizeof(question.address)) length = question.length = sizeof(question.address);
    memcpy(&question.address, address, length);
    return lookup_new(&question, offsetof(struct question, address) + length);
}

// ---- the table. Call these with the lock held.

static struct job **bucket_of(const struct job *job)
{
    uint32_t hash = 2166136261u; // FNV-1a
    const unsigned char *byte = (const unsigned char *)&job->question;
    for (size_t i = 0; i < job->size; i++)
        hash = (hash ^ byte[i]) * 16777619u;
    return &pool.table[hash & (BUCKETS - 1)];
}

static struct job *find_equal(const struct job *job)
{
    for (struct job *other = *bucket_of(job); other; other = other->chain) {
        if (other->size == job->size && memcmp(&other->question, &job->question, job->size) == 0) return other;
    }
    return NULL;
}

static void table_add(struct job *job)
{
    struct job **bucket = bucket_of(job);
    job->chain = *bucket;
    *bucket = job;
    atomic_fetch_add(&job->references, 1);
}

static void table_remove(struct job *job)
{
    struct job **link = bucket_of(job);
    while (*link != job)
        link = &(*link)->chain;
    *link = job->chain;
    job_release(job);
}

// A child of fork has none of the threads, and running look-ups belong to the parent. Kept answers are dropped, too:
// any thread may have held the lock, so the data that the lock guards may be half changed.
static void discard_parents_threads(void)
{
    if (pool.fork_count == fork_count()) return;
    int64_t caches = pool.caches;
    memset(&pool, 0, sizeof(pool));
    pthread_mutex_init(&pool.lock, NULL);
    pthread_cond_init(&pool.arrived, NULL);
    pool.caches = caches;
    pool.fork_count = fork_count();
}

// ---- cached answers. Call these with the lock held.

static bool worth_keeping(const struct answer *answer)
{
    if (answer->error == 0 || answer->error == EAI_NONAME) return true;
#ifdef EAI_NODATA
    if (answer->error == EAI_NODATA) return true;
#endif
    return false;
}

static void forget_oldest(void)
{
    struct job *oldest = pool.cached_head;
    pool.cached_head = oldest->next;
    if (!pool.cached_head) pool.cached_tail = NULL;
    pool.cached--;
    table_remove(oldest);
}

// All answers are kept for the same time, so the oldest expire first.
static void forget_outdated(deadline_t now)
{
    while (pool.cached_head && pool.cached_head->valid_until <= now)
        forget_oldest();
}

static void keep_or_forget(struct job *job)
{
    if (pool.caches == 0 || !worth_keeping(&job->answer)) {
        table_remove(job);
        return;
    }
    deadline_t now = deadline_now();
    forget_outdated(now);
    if (pool.cached == RESOLVER_CACHED) forget_oldest();
    job->valid_until = deadline_after(now, pool.caches);
    job->next = NULL;
    if (pool.cached_tail) {
        pool.cached_tail->next = job;
    } else {
        pool.cached_head = job;
    }
    pool.cached_tail = job;
    pool.cached++;
}

void resolver_keep(int64_t span)
{
    discard_parents_threads();
    pthread_mutex_lock(&pool.lock);
    while (pool.cached_head) // they were kept for another span
        forget_oldest();
    pool.caches = span;
    pthread_mutex_unlock(&pool.lock);
}

int64_t resolver_caches(void)
{
    return pool.caches;
}

// ---- the threads

// A slow name must not take a thread from other names: the limit THREADS counts only threads whose names are not (yet)
// slow. Call these with the lock held.

static void quick_add(struct job *job)
{
    job->started = deadline_now();
    job->next = NULL;
    job->prev = pool.quick_tail;
    if (pool.quick_tail) {
        pool.quick_tail->next = job;
    } else {
        pool.quick_head = job;
    }
    pool.quick_tail = job;
}

static void quick_remove(struct job *job)
{
    if (job->prev) {
        job->prev->next = job->next;
    } else {
        pool.quick_head = job->next;
    }
    if (job->next) {
        job->next->prev = job->prev;
    } else {
        pool.quick_tail = job->prev;
    }
}

static void find_slow(deadline_t now)
{
    struct job *oldest;
    while ((oldest = pool.quick_head) && now - oldest->started >= SLOW) {
        quick_remove(oldest);
        oldest->slow = true;
        pool.slow++;
    }
}

static void ended(struct job *job)
{
    if (job->slow) {
        pool.slow--;
    } else {
        quick_remove(job);
    }
}

static bool thread_allowed(void)
{
    return pool.threads - pool.slow < THREADS && pool.threads < ALL_THREADS;
}

// Call it with the lock held; releases the lock while it waits.
static struct job *next_job(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += IDLE_SECONDS;
    for (;;) {
        while (!pool.head) {
            pool.idle++;
            int error = pthread_cond_timedwait(&pool.arrived, &pool.lock, &until);
            pool.idle--;
            if (error == ETIMEDOUT && !pool.head) return NULL;
        }
        struct job *job = pool.head;
        pool.head = job->next;
        if (!pool.head) pool.tail = NULL;
        pool.queued--;
        if (job->askers) {
            job->state = JOB_RUNNING;
            quick_add(job);
            return job;
        }
        table_remove(job); // all askers have given up
    }
}

// Call it with the lock held.
static void tell_askers(struct job *job)
{
    job->state = JOB_DONE;
    pool.answers[job->answer.error != 0]++;
    atomic_store(&job->answered, true);
    struct lookup *asker = job->askers;
    job->askers = NULL;
    while (asker) {
        struct lookup *next = asker->next;
        struct wakeup *wakeup = asker->wakeup;
        asker->wakeup = NULL;
        wakeup_post(wakeup, &asker->note); // from here on the asker may be gone
        wakeup_release(wakeup);
        asker = next;
    }
}

static void *look_up(void *unused)
{
    (void)unused;
    question_discard_parents();
    pthread_mutex_lock(&pool.lock);
    for (struct job *job = next_job(); job; job = next_job()) {
        pthread_mutex_unlock(&pool.lock);
        question_ask(&job->question, &job->answer);
        pthread_mutex_lock(&pool.lock);
        ended(job);
        tell_askers(job);
        keep_or_forget(job);
    }
    pool.threads--;
    pthread_mutex_unlock(&pool.lock);
    return NULL;
}

// Returns 0 or an errno. Call it with the lock held.
static int resolver_start_thread(void)
{
    int error = native_thread_start(look_up, STACK_BYTES);
    if (error == 0) pool.threads++;
    return error;
}

// Starts threads for queued jobs when other jobs turn out to be slow.
static void *resolver_watch(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&pool.lock);
    while (pool.head && pool.threads < ALL_THREADS) {
        deadline_t now = deadline_now();
        find_slow(now);
        for (int wanted = pool.queued - pool.idle; wanted > 0 && thread_allowed(); wanted--) {
            if (resolver_start_thread()) break;
        }
        int64_t left = pool.quick_head ? pool.quick_head->started + SLOW - now : SLOW;
        struct timespec span = {.tv_nsec = left < SLOW / 50 ? SLOW / 50 : left < SLOW ? left : SLOW - 1};
        pthread_mutex_unlock(&pool.lock);
        nanosleep(&span, NULL);
        pthread_mutex_lock(&pool.lock);
    }
    pool.watched = false;
    pthread_mutex_unlock(&pool.lock);
    return NULL;
}

// Returns 0 or an errno. Call it with the lock held. A new thread counts as idle until it runs: the queued jobs are for
// the idle threads.
static int find_thread(void)
{
    if (pool.queued < pool.idle) return 0;
    if (pool.threads >= THREADS) find_slow(deadline_now());
    if (thread_allowed()) return resolver_start_thread();
    if (!pool.watched && pool.threads < ALL_THREADS)
        pool.watched = native_thread_start(resolver_watch, STACK_BYTES) == 0;
    return 0;
}

// ---- asking

static void enqueue(struct job *job)
{
    job->state = JOB_QUEUED;
    job->next = NULL;
    if (pool.tail) {
        pool.tail->next = job;
    } else {
        pool.head = job;
    }
    pool.tail = job;
    pool.queued++;
    pthread_cond_signal(&pool.arrived);
}

static void join_askers(struct lookup *lookup)
{
    struct job *job = lookup->job;
    lookup->prev = NULL;
    lookup->next = job->askers;
    if (job->askers) job->askers->prev = lookup;
    job->askers = lookup;
}

// Uses an equal job that exists already instead of the lookup's own.
static bool join_other(struct lookup *lookup)
{
    if (pool.caches) forget_outdated(deadline_now());
    struct job *other = find_equal(lookup->job);
    if (!other) return false;
    atomic_fetch_add(&other->references, 1);
    job_release(lookup->job);
    lookup->job = other;
    return true;
}

void resolver_counts(uint64_t *found, uint64_t *failed)
{
    discard_parents_threads();
    pthread_mutex_lock(&pool.lock);
    *found = pool.answers[0];
    *failed = pool.answers[1];
    pthread_mutex_unlock(&pool.lock);
}

size_t resolver_in_flight(char (*names)[RESOLVER_SHOWN], size_t most)
{
    size_t count = 0;
    discard_parents_threads();
    pthread_mutex_lock(&pool.lock);
    for (int i = 0; i < BUCKETS; i++) {
        for (const struct job *job = pool.table[i]; job; job = job->chain) {
            if (job->state == JOB_DONE) continue; // its answer is kept
            const char *name = job->question.length ? "the name of an address" : job->question.host;
            if (count < most) snprintf(names[count], RESOLVER_SHOWN, "%s", name);
            count++;
        }
    }
    pthread_mutex_unlock(&pool.lock);
    return count;
}

// ---- in a simulation

void resolver_simulate(resolver_ask ask)
{
    simulated = ask;
}

bool resolver_simulated(void)
{
    return simulated;
}

void resolver_answer(struct job *job, int error, struct addresses *addresses)
{
    pthread_mutex_lock(&pool.lock);
    job->answer.error = error;
    job->answer.addresses = addresses;
    tell_askers(job);
    keep_or_forget(job);
    pthread_mutex_unlock(&pool.lock);
}

// The name of an address is its digits.
static void ask_simulation(struct job *job)
{
    if (!job->question.length) {
        simulated(job, job->question.host, job->question.family_or_flags);
        return;
    }
    struct question question = job->question;
    question.family_or_flags |= NI_NUMERICHOST | NI_NUMERICSERV;
    question_ask(&question, &job->answer);
    resolver_answer(job, job->answer.error, NULL);
}

void lookup_submit(struct lookup *lookup, struct wakeup *wakeup, uint64_t key)
{
    discard_parents_threads();
    pthread_mutex_lock(&pool.lock);
    lookup->note.key = key;
    lookup->wakeup = wakeup_retain(wakeup);
    atomic_fetch_add(&lookup->references, 1);
    bool joined = join_other(lookup);
    join_askers(lookup);
    struct job *job = lookup->job;
    if (joined) {
        if (job->state == JOB_DONE) tell_askers(job);
    } else if (simulated) {
        table_add(job);
        job->state = JOB_RUNNING;
        pthread_mutex_unlock(&pool.lock);
        ask_simulation(job);
        return;
    } else {
        int error = find_thread();
        if (error && pool.threads == 0) {
            job->answer.error = EAI_SYSTEM;
            job->answer.system_error = error;
            tell_askers(job);
        } else {
            table_add(job);
            enqueue(job);
        }
    }
    pthread_mutex_unlock(&pool.lock);
}

void lookup_expect(struct lookup *lookup, uint64_t key)
{
    lookup->note.key = key;
}

const struct answer *lookup_answer(const struct lookup *lookup)
{
    return atomic_load(&lookup->job->answered) ? &lookup->job->answer : NULL;
}

void lookup_end(struct lookup *lookup)
{
    if (lookup->fork_count != fork_count()) return; // the lookup's lists belong to the parent
    pthread_mutex_lock(&pool.lock);
    struct wakeup *wakeup = lookup->wakeup;
    if (wakeup) { // the asker still waits
        if (lookup->next) lookup->next->prev = lookup->prev;
        if (lookup->prev) {
            lookup->prev->next = lookup->next;
        } else {
            lookup->job->askers = lookup->next;
        }
        lookup->wakeup = NULL;
        lookup_release(lookup); // the note's reference
    }
    pthread_mutex_unlock(&pool.lock);
    if (wakeup) wakeup_release(wakeup);
    lookup_release(lookup);
}
