// The native thread that listens. It needs no GVL, and keeps none of a loop's memory.
//
// The lock is held while descriptors are opened or closed, and during a fork: so a child knows all of its copies, and
// closes them. Spans of time are those of the real clock: a simulation's stands still.
#include "insight/insight.h"

#include "os/fork.h"
#include "os/native_thread.h"
#include "os/own_descriptor.h"
#include "portable.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <time.h>

enum { WAITING = 16, SLICE = 256, STACK = 256 * 1024 };
static const int64_t MILLISECOND = 1000000, QUESTION_SPAN = 1000 * MILLISECOND;
// Who reads slowly, on a busy machine, gets all; who takes nothing for so long does not keep others waiting.
static const int64_t ANSWER_SPAN = 60000 * MILLISECOND, UNREAD_SPAN = 10000 * MILLISECOND;
static const int64_t PATIENCE = 300 * MILLISECOND;
static const long MOST_PATIENCE = 60000; // milliseconds

static struct {
    pthread_mutex_t lock;
    pthread_cond_t ended;
    struct own_descriptor listening, connection;
    struct own_descriptor stop, stopped; // read by the thread; written to end it
    bool ready, running;
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
    char *head;
} server = {.lock = PTHREAD_MUTEX_INITIALIZER,
            .listening = {.number = -1},
            .connection = {.number = -1},
            .stop = {.number = -1},
            .stopped = {.number = -1}};

static void close_all(void)
{
    own_descriptor_close(&server.connection);
    own_descriptor_close(&server.listening);
    own_descriptor_close(&server.stop);
    own_descriptor_close(&server.stopped);
}

// ---- forks

static void before_fork(void)
{
    pthread_mutex_lock(&server.lock);
}

static void after_fork_in_parent(void)
{
    pthread_mutex_unlock(&server.lock);
}

// Another thread may have been inside of malloc: frees nothing.
static void after_fork_in_child(void)
{
    pthread_mutex_init(&server.lock, NULL);
    close_all();
    server.running = server.ready = false;
    server.head = NULL;
    helper_discard();
}

// ---- a connection

// Waits until the connection is ready for `events`. Returns false when the time is over, the thread is to end, or other
// code has closed the connection's descriptor.
static bool ready(short events, deadline_t until)
{
    for (;;) {
        int64_t left = until - deadline_real();
        if (left <= 0) return false;
        struct pollfd asked[] = {{.fd = server.connection.number, .events = events},
                                 {.fd = server.stop.number, .events = POLLIN}};
        int found = poll(asked, 2, deadline_milliseconds(left));
        if (found < 0 && errno != EINTR) return false;
        if (found > 0) return !asked[1].revents && own_descriptor_valid(&server.connection);
    }
}

static bool own_user(void)
{
#ifdef HEDDLE_HAS_PEER_CREDENTIALS
    struct ucred peer;
    socklen_t length = sizeof(peer);
    return getsockopt(server.connection.number, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
#elif defined(HEDDLE_HAS_GETPEEREID)
    uid_t user;
    gid_t group;
    return getpeereid(server.connection.number, &user, &group) == 0 && user == geteuid();
#else
    return false; // who asks cannot be known here
#endif
}

// Returns whether a whole line came.
static bool read_question(char *question)
{
    deadline_t until = deadline_real() + QUESTION_SPAN;
    size_t length = 0;
    while (length < QUESTION - 1) {
        if (!ready(POLLIN, until)) return false;
        ssize_t count = recv(server.connection.number, question + length, QUESTION - 1 - length, 0);
        if (count < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (count <= 0) return false;
        length += (size_t)count;
        question[length] = 0;
        char *end = memchr(question, '\n', length);
        if (!end) continue;
        *end = 0;
        return true;
    }
    return false;
}

static bool write_all(const char *bytes, size_t length, deadline_t until)
{
    while (length) {
        deadline_t unread = deadline_real() + UNREAD_SPAN;
        if (!ready(POLLOUT, unread < until ? unread : until)) return false;
        ssize_t count = send(server.connection.number, bytes, length, PORTABLE_NOSIGNAL);
        if (count < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (count <= 0) return false;
        bytes += count;
        length -= (size_t)count;
    }
    return true;
}

static bool write_text(struct text *text, deadline_t until)
{
    bool written = !text->failed && write_all(text->bytes, text->length, until);
    text->length = 0;
    return written;
}

static bool write_rows(struct text *text, deadline_t until)
{
    deadline_t now = deadline_now();
    const struct loop_record *last = NULL;
    for (struct loop_row row; record_next_loop(&last, &row);)
        rows_loop(text, &row, now);
    uint32_t from = 0;
    int count = 0;
    for (struct task_row row; record_next_task(&from, &row);) {
        if (count++ % SLICE == 0) {
            if (!write_text(text, until)) return false;
            now = deadline_now();
        }
        rows_task(text, &row, now);
    }
    return write_text(text, until);
}

// Takes " wait=MILLISECONDS" off the question.
static int64_t patience_of(char *question)
{
    char *wait = strstr(question, " wait=");
    if (!wait) return PATIENCE;
    long milliseconds = strtol(wait + strlen(" wait="), NULL, 10);
    *wait = 0;
    if (milliseconds < 0) return 0;
    return milliseconds > MOST_PATIENCE ? MOST_PATIENCE * MILLISECOND : milliseconds * MILLISECOND;
}

static void write_answer(char *question)
{
    struct text text = {0};
    // Asked first, so that the rows are not older than what the helper says of them.
    char *words = NULL;
    size_t length = 0;
    enum helped helped = helper_ask(question, patience_of(question), &words, &length);
    deadline_t until = deadline_real() + ANSWER_SPAN;
    text_add(&text, server.head, strlen(server.head));
    struct timespec clock;
    clock_gettime(CLOCK_REALTIME, &clock);
    text_format(&text, "{\"now\":%lld.%03ld,\"lost\":%llu}\n", (long long)clock.tv_sec, clock.tv_nsec / 1000000,
                (unsigned long long)records_lost());
    bool written = write_rows(&text, until);
    switch (helped) {
    case HELPED: written = written && write_all(words, length, until); break;
    case HELPER_LATE: text_format(&text, "{\"ruby\":null,\"reason\":\"late\"}\n"); break;
    case HELPER_MISSING: text_format(&text, "{\"ruby\":null,\"reason\":\"missing\"}\n"); break;
    }
    text_format(&text, "{\"end\":true}\n");
    if (written) write_text(&text, until);
    free(words);
    text_free(&text);
}

static void serve_connection(void)
{
    char question[QUESTION];
    if (!own_user()) {
        char refusal[96];
        int length = snprintf(refusal, sizeof(refusal), "{\"refused\":\"user\",\"user\":%ld}\n", (long)geteuid());
        write_all(refusal, (size_t)length, deadline_real() + QUESTION_SPAN);
    } else if (read_question(question)) {
        write_answer(question);
    }
}

// ---- the thread

static bool accept_connection(void)
{
    pthread_mutex_lock(&server.lock);
    bool usable = own_descriptor_valid(&server.listening);
    int connection = usable ? portable_accept(server.listening.number) : -1;
    server.connection = own_descriptor(connection);
    pthread_mutex_unlock(&server.lock);
    return usable;
}

static void *serve_connections(void *unused)
{
    (void)unused;
    for (;;) {
        struct pollfd asked[] = {{.fd = server.listening.number, .events = POLLIN},
                                 {.fd = server.stop.number, .events = POLLIN}};
        int found = poll(asked, 2, -1);
        if (found < 0 && errno != EINTR) break;
        if (found > 0 && asked[1].revents) break;
        if (found <= 0) continue;
        if (!accept_connection()) break; // other code has closed our descriptor
        if (server.connection.number < 0) {
            poll(NULL, 0, 10); // no descriptor is left, say
            continue;
        }
        serve_connection();
        pthread_mutex_lock(&server.lock);
        own_descriptor_close(&server.connection);
        pthread_mutex_unlock(&server.lock);
    }
    pthread_mutex_lock(&server.lock);
    server.running = false;
    pthread_cond_broadcast(&server.ended);
    pthread_mutex_unlock(&server.lock);
    return NULL;
}

// ---- life. With the GVL.

// Returns a listening socket, or -1 with errno.
static int listen_at(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strcpy(address.sun_path, path);
    int listening = portable_stream_socket(AF_UNIX);
    if (listening < 0) return -1;
    // Nobody may connect before the mode is set; the folder is the user's own anyway.
    if (bind(listening, (struct sockaddr *)&address, sizeof(address)) == 0 && chmod(path, 0600) == 0 &&
        listen(listening, WAITING) == 0)
        return listening;
    int saved = errno;
    close(listening);
    errno = saved;
    return -1;
}

static bool make_pipe(void)
{
    int ends[2];
    if (portable_pipe(ends) != 0) return false;
    server.stop = own_descriptor(ends[0]);
    server.stopped = own_descriptor(ends[1]);
    return true;
}

static int start(const char *path)
{
    int listening = listen_at(path);
    if (listening < 0) return errno;
    server.listening = own_descriptor(listening);
    int error = make_pipe() ? native_thread_start(serve_connections, STACK) : errno;
    if (error) {
        unlink(path);
        close_all();
    }
    return error;
}

int server_start(const char *path, const char *head)
{
    static bool watched;
    if (!watched) watched = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) == 0;
    if (!watched) return ENOMEM;
    if (strlen(path) >= sizeof(server.path)) return ENAMETOOLONG;
    char *copy = strdup(head);
    if (!copy) return ENOMEM;
    pthread_mutex_lock(&server.lock);
    if (server.running) { // a thread that was told to end, and is late
        pthread_mutex_unlock(&server.lock);
        free(copy);
        return EBUSY;
    }
    if (!server.ready) {
        native_condition_init(&server.ended);
        server.ready = true;
    }
    close_all(); // of a thread that has ended by itself
    strcpy(server.path, path);
    free(server.head);
    server.head = copy;
    helper_hurry(false);
    int error = start(path);
    server.running = !error;
    pthread_mutex_unlock(&server.lock);
    return error;
}

void server_stop(void)
{
    pthread_mutex_lock(&server.lock);
    bool running = server.running;
    if (own_descriptor_valid(&server.stopped)) {
        ssize_t written = write(server.stopped.number, "x", 1);
        (void)written; // the pipe cannot be full
    }
    pthread_mutex_unlock(&server.lock);
    if (!running) return;
    helper_hurry(true);
    pthread_mutex_lock(&server.lock);
    deadline_t until = deadline_real() + QUESTION_SPAN;
    while (server.running && deadline_real() < until)
        native_condition_wait(&server.ended, &server.lock, until);
    if (!server.running) close_all();
    pthread_mutex_unlock(&server.lock);
}

bool server_runs(void)
{
    pthread_mutex_lock(&server.lock);
    bool running = server.running && own_descriptor_valid(&server.listening);
    pthread_mutex_unlock(&server.lock);
    return running;
}
