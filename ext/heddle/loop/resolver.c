#include "loop/resolver.h"

#include "loop/fork.h"

#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

enum {
    THREADS = 8,       // at most; names that hang must not keep all others waiting
    IDLE_SECONDS = 10, // after which a thread ends
};

// Shared by the fiber that asks and the thread that looks: whoever lets go last frees it.
struct job {
    struct wakeup_note note; // first: a note is a job
    atomic_int references;
    struct wakeup *wakeup;
    struct job *next;
    struct addrinfo *found;
    int error;        // EAI_…
    int system_error; // errno with EAI_SYSTEM
    char host[];
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t arrived;
    struct job *head, *tail;
    int queued;
    int threads;
    int idle;
    unsigned fork_count;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .arrived = PTHREAD_COND_INITIALIZER};

static void job_release(struct job *job)
{
    if (atomic_fetch_sub(&job->references, 1) > 1) return;
    if (job->found) freeaddrinfo(job->found);
    free(job);
}

static void drop_note(struct wakeup_note *note)
{
    job_release((struct job *)note);
}

static struct job *next_job(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += IDLE_SECONDS;
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
    return job;
}

static void *look_up(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&pool.lock);
    for (struct job *job = next_job(); job; job = next_job()) {
        pthread_mutex_unlock(&pool.lock);
        struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
        job->error = getaddrinfo(job->host, NULL, &hints, &job->found);
        job->system_error = errno;
        struct wakeup *wakeup = job->wakeup;
        wakeup_post(wakeup, &job->note);
        wakeup_release(wakeup);
        pthread_mutex_lock(&pool.lock);
    }
    pool.threads--;
    pthread_mutex_unlock(&pool.lock);
    return NULL;
}

// 0 or an errno. With the lock held.
static int start_thread(void)
{
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all); // signals are Ruby's threads' business
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    int error = pthread_create(&thread, &attributes, look_up, NULL);
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0) pool.threads++;
    return error;
}

// A child of fork has none of the threads; what they were doing is the parent's.
static void forget_parents_threads(void)
{
    if (pool.fork_count == fork_count()) return;
    pthread_mutex_init(&pool.lock, NULL);
    pthread_cond_init(&pool.arrived, NULL);
    pool.head = pool.tail = NULL;
    pool.threads = pool.idle = pool.queued = 0;
    pool.fork_count = fork_count();
}

static void submit(void *argument, struct wakeup *wakeup, uint64_t key)
{
    struct job *job = argument;
    job->note.key = key;
    job->note.drop = drop_note;
    job->wakeup = wakeup_retain(wakeup);
    atomic_fetch_add(&job->references, 1);

    forget_parents_threads();
    pthread_mutex_lock(&pool.lock);
    int error = 0;
    // A thread counts as idle until it runs; the jobs that are queued are for those.
    if (pool.queued >= pool.idle && pool.threads < THREADS) error = start_thread();
    if (error && pool.threads == 0) {
        pthread_mutex_unlock(&pool.lock);
        job->error = EAI_SYSTEM;
        job->system_error = error;
        wakeup_post(job->wakeup, &job->note);
        wakeup_release(job->wakeup);
        return;
    }
    if (pool.tail) {
        pool.tail->next = job;
    } else {
        pool.head = job;
    }
    pool.tail = job;
    pool.queued++;
    pthread_cond_signal(&pool.arrived);
    pthread_mutex_unlock(&pool.lock);
}

struct lookup {
    struct loop *loop;
    struct job *job;
};

static VALUE addresses_of(const struct addrinfo *found)
{
    VALUE addresses = rb_ary_new();
    for (; found; found = found->ai_next) {
        char text[NI_MAXHOST];
        if (getnameinfo(found->ai_addr, found->ai_addrlen, text, sizeof(text), NULL, 0, NI_NUMERICHOST) != 0) continue;
        VALUE address = rb_str_new_cstr(text);
        if (!RTEST(rb_ary_includes(addresses, address))) rb_ary_push(addresses, address);
    }
    return addresses;
}

static VALUE lookup_body(VALUE argument)
{
    struct lookup *lookup = (struct lookup *)argument;
    struct job *job = lookup->job;
    loop_wait_native(lookup->loop, submit, job);
    if (job->error == 0) return addresses_of(job->found);
    // nil lets Ruby say that the name is not known; anything else is said here, with its own reason.
    if (job->error == EAI_NONAME) return Qnil;
#ifdef EAI_NODATA
    if (job->error == EAI_NODATA) return Qnil;
#endif
    VALUE socket_error = rb_path2class("SocketError");
    const char *reason = job->error == EAI_SYSTEM ? strerror(job->system_error) : gai_strerror(job->error);
    rb_raise(socket_error, "getaddrinfo(%s): %s", job->host, reason);
}

static VALUE lookup_end(VALUE argument)
{
    job_release(((struct lookup *)argument)->job);
    return Qnil;
}

VALUE resolver_addresses(struct loop *loop, VALUE host)
{
    const char *name = StringValueCStr(host);
    size_t length = strlen(name);
    struct job *job = calloc(1, sizeof(*job) + length + 1);
    if (!job) rb_memerror();
    memcpy(job->host, name, length + 1);
    atomic_store(&job->references, 1);
    struct lookup lookup = {.loop = loop, .job = job};
    return rb_ensure(lookup_body, (VALUE)&lookup, lookup_end, (VALUE)&lookup);
}
