// Heddle.trace: begins and ends a trace, and its native thread.
#include "insight/trace_file.h"
#include "loop/all_loops.h"
#include "loop/context.h"
#include "os/native_thread.h"
#include "shims.h"

#include <errno.h>
#include <fcntl.h>
#include <ruby/thread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// Between two looks at the rings, which are far from full by then.
static const struct timespec between = {.tv_nsec = 2000000};

struct writer {
    struct trace trace; // first: the loops know only this
    pthread_mutex_t lock;
    pthread_cond_t changed;
    atomic_bool stop;
    bool done;        // guarded by the lock
    deadline_t ended; // set before `stop`
    char *path;
    struct trace_file file;
};

static struct writer *running;  // of this process while trace_current() says so
static struct writer *starting; // for the new thread, which takes it under its lock

// ---- the native thread

static size_t take_all(struct writer *writer)
{
    size_t count = 0;
    struct trace_ring *ring = atomic_load_explicit(&writer->trace.rings, memory_order_acquire);
    for (; ring; ring = ring->next)
        count += trace_file_take(&writer->file, ring);
    trace_file_flush(&writer->file);
    return count;
}

static void *write_trace(void *unused)
{
    (void)unused;
    struct writer *writer = starting;
    pthread_mutex_lock(&writer->lock);
    starting = NULL;
    pthread_cond_broadcast(&writer->changed);
    pthread_mutex_unlock(&writer->lock);
    while (!atomic_load(&writer->stop)) {
        if (take_all(writer) < TRACE_EVENTS / 2) nanosleep(&between, NULL);
    }
    take_all(writer); // the loops put nothing more
    trace_file_end(&writer->file, &writer->trace, writer->ended);
    pthread_mutex_lock(&writer->lock);
    writer->done = true;
    pthread_cond_broadcast(&writer->changed);
    pthread_mutex_unlock(&writer->lock);
    return NULL;
}

// ---- beginning and ending

static void free_writer(struct writer *writer)
{
    struct trace_ring *ring = atomic_load(&writer->trace.rings);
    for (struct trace_ring *next; ring; ring = next) {
        next = ring->next;
        free(ring);
    }
    pthread_mutex_destroy(&writer->lock);
    pthread_cond_destroy(&writer->changed);
    text_free(&writer->file.text);
    free(writer->path);
    free(writer);
}

static struct writer *new_writer(const char *path)
{
    struct writer *writer = calloc(1, sizeof(*writer));
    if (!writer) return NULL;
    pthread_mutex_init(&writer->lock, NULL);
    native_condition_init(&writer->changed);
    writer->path = strdup(path);
    return writer;
}

// Returns an errno, or 0.
static int start_thread(struct writer *writer)
{
    starting = writer;
    int error = native_thread_start(write_trace, 0);
    if (error) return error;
    pthread_mutex_lock(&writer->lock);
    while (starting)
        pthread_cond_wait(&writer->changed, &writer->lock);
    pthread_mutex_unlock(&writer->lock);
    return 0;
}

static void *await_end(void *argument)
{
    struct writer *writer = argument;
    pthread_mutex_lock(&writer->lock);
    while (!writer->done)
        pthread_cond_wait(&writer->changed, &writer->lock);
    pthread_mutex_unlock(&writer->lock);
    return NULL;
}

// Waits for the rest to be written, in any loop, while other threads run: some milliseconds, or the time for which a
// pipe's reader may hang. Returns an errno, or 0.
static int end(struct writer *writer)
{
    writer->ended = deadline_now();
    atomic_store(&writer->stop, true);
    rb_nogvl(await_end, writer, NULL, NULL, RB_NOGVL_INTR_FAIL);
    if (!writer->done) await_end(writer); // an interrupt is pending, and Ruby has refused
    int error = writer->file.error;
    free_writer(writer);
    return error;
}

static void refuse_second(const char *path)
{
    if (!trace_current()) return;
    rb_raise(rb_const_get(heddle_module, rb_intern("TraceInProgress")),
             "cannot trace to %s: a trace is being written to %s, and there is one at a time in a process", path,
             running->path);
}

// Ruby opens the file, because that may take long: other threads run meanwhile, and an interrupt ends it. A reader of a
// pipe may hang, and the writing thread must not hang with it.
static int open_file(VALUE path)
{
    VALUE file = rb_file_open_str(path, "wb");
    int descriptor = rb_cloexec_fcntl_dupfd(rb_io_descriptor(file), 3), error = errno;
    int state = 0;
    rb_protect(rb_io_close, file, &state);
    if (state) {
        if (descriptor >= 0) close(descriptor);
        rb_jump_tag(state);
    }
    if (descriptor < 0) rb_syserr_fail_str(error, path);
    rb_update_max_fd(descriptor);
    fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK);
    return descriptor;
}

static struct writer *begin(VALUE path)
{
    const char *name = StringValueCStr(path);
    refuse_second(name);
    int descriptor = open_file(path);
    if (trace_current()) close(descriptor);
    refuse_second(name);
    struct writer *writer = new_writer(name);
    if (!writer) {
        close(descriptor);
        rb_memerror();
    }
    trace_file_begin(&writer->file, descriptor, &writer->stop);
    int error = start_thread(writer);
    if (error) {
        close(descriptor);
        free_writer(writer);
        rb_syserr_fail(error, "heddle: cannot start the thread that writes the trace");
    }
    return running = writer;
}

struct tracing {
    struct writer *writer;
    VALUE path;
    unsigned forks;
    int error;
};

static VALUE tracing_body(VALUE argument)
{
    struct tracing *tracing = (struct tracing *)argument;
    all_loops_trace(&tracing->writer->trace);
    return rb_yield_values(0);
}

// In a child of fork there is no thread that writes, and the file is the parent's.
static VALUE tracing_end(VALUE argument)
{
    struct tracing *tracing = (struct tracing *)argument;
    if (tracing->forks != fork_count()) return Qnil;
    all_loops_trace_end();
    running = NULL;
    tracing->error = end(tracing->writer);
    return Qnil;
}

/*
 * call-seq: Heddle.trace(path) { ... } -> the block's value
 *
 * Writes to the file what the loops of this process do during the block, those of other threads too: which task runs
 * when, what each waits for, who woke it, the bytes that it moves, starts and ends. The format is Chrome's trace event
 * format, which https://ui.perfetto.dev opens. An exception that leaves the block leaves a whole file.
 *
 * Loops never wait for the file: a thread writes it, and events for which there is no room meanwhile are lost, and
 * counted in the file. Only the end of the block waits until the rest is written; for the reader of a pipe that takes
 * nothing, five seconds. A child of fork does not write. Tracing takes some hundred nanoseconds a switch.
 *
 * @example
 *   Heddle.trace("import.json") { Heddle.run { import } }
 * @param path [String, #to_path] the file; what it contained is lost
 * @return [Object]
 * @raise [TraceInProgress] while another trace of this process is being written
 * @raise [SystemCallError] when the file cannot be opened, or (at the end) written: Errno::ETIMEDOUT for a pipe whose
 *   reader hangs
 */
static VALUE trace_to_file(VALUE self, VALUE path)
{
    (void)self;
    if (!rb_block_given_p()) rb_raise(rb_eArgError, "Heddle.trace needs a block: what runs in it is traced");
    path = rb_get_path(path);
    struct tracing tracing = {.writer = begin(path), .path = path, .forks = fork_count()};
    VALUE value = rb_ensure(tracing_body, (VALUE)&tracing, tracing_end, (VALUE)&tracing);
    if (tracing.error) rb_syserr_fail_str(tracing.error, path);
    return value;
}

void Init_heddle_trace(void)
{
    rb_define_singleton_method(heddle_module, "trace", trace_to_file, 1);
}
