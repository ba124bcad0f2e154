#include "insight/trace_file.h"

#include "loop/wait.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

// ---- text

enum {
    GATHERED = 1 << 16, // bytes that are written at once
    PATIENCE = 5000,    // milliseconds for which a pipe may be full after the trace's end
    LOOK_EVERY = 100    // … between two looks at whether that has come
};

// Waits until the reader of a pipe takes more. Returns false if the trace has ended and he takes nothing.
static bool await_reader(const struct trace_file *file)
{
    struct pollfd asked = {.fd = file->descriptor.number, .events = POLLOUT};
    for (int left = PATIENCE; left > 0;) {
        int found = poll(&asked, 1, LOOK_EVERY);
        if (found > 0 || (found < 0 && errno != EINTR)) return true; // write() will tell
        if (atomic_load(file->stop)) left -= LOOK_EVERY;
    }
    return false;
}

// Returns how many bytes were written, or -errno.
static ssize_t write_some(const struct trace_file *file, const char *bytes, size_t length)
{
    if (!own_descriptor_valid(&file->descriptor)) return -EBADF; // other code has closed it
    ssize_t count = write(file->descriptor.number, bytes, length);
    if (count >= 0 || errno == EINTR) return count < 0 ? 0 : count;
    if (errno != EAGAIN) return -errno;
    return await_reader(file) ? 0 : -ETIMEDOUT;
}

void trace_file_flush(struct trace_file *file)
{
    if (file->text.failed && !file->error) file->error = ENOMEM;
    for (size_t done = 0; done < file->text.length && !file->error;) {
        ssize_t count = write_some(file, file->text.bytes + done, file->text.length - done);
        if (count < 0) {
            file->error = (int)-count;
        } else {
            done += (size_t)count;
        }
    }
    file->text.length = 0;
    file->text.failed = false;
}

static void text(struct trace_file *file, const char *bytes)
{
    text_add(&file->text, bytes, strlen(bytes));
}

static void number(struct trace_file *file, uint64_t value)
{
    char digits[20];
    size_t at = sizeof(digits);
    do {
        digits[--at] = (char)('0' + value % 10);
    } while (value /= 10);
    text_add(&file->text, digits + at, sizeof(digits) - at);
}

static void signed_number(struct trace_file *file, int64_t value)
{
    if (value < 0) text(file, "-");
    number(file, value < 0 ? -(uint64_t)value : (uint64_t)value);
}

// Nanoseconds, as microseconds with three digits behind the point.
static void microseconds(struct trace_file *file, int64_t span)
{
    if (span < 0) span = 0;
    const char rest[] = {'.', (char)('0' + span / 100 % 10), (char)('0' + span / 10 % 10), (char)('0' + span % 10)};
    number(file, (uint64_t)span / 1000);
    text_add(&file->text, rest, sizeof(rest));
}

// Begins an object: of that phase, on the loop's track.
static void begin(struct trace_file *file, const char *phase, const struct trace_ring *ring, deadline_t at)
{
    if (file->text.length >= GATHERED) trace_file_flush(file);
    text(file, file->separate ? ",\n{\"ph\":\"" : "{\"ph\":\"");
    file->separate = true;
    text(file, phase);
    text(file, "\",\"pid\":");
    number(file, (uint64_t)file->process);
    text(file, ",\"tid\":");
    number(file, ring->number);
    text(file, ",\"ts\":");
    microseconds(file, at - file->began);
}

// A slice of the loop's track. What began before the trace did begins with it.
static void slice(struct trace_file *file, const struct trace_ring *ring, const struct trace_event *event)
{
    deadline_t from = event->at < file->began ? file->began : event->at;
    begin(file, "X", ring, from);
    text(file, ",\"dur\":");
    microseconds(file, event->at + event->first - from);
}

static void name_of(struct trace_file *file, uint64_t task)
{
    const struct trace_name *name = trace_names_find(&file->names, task);
    if (name && name->length) {
        text_escaped(&file->text, name->text, name->length);
    } else {
        text(file, "task ");
        number(file, task);
    }
}

// ---- events

// The task's own track: objects of one id nest.
static void on_task(struct trace_file *file, const char *phase, const struct trace_ring *ring, deadline_t at,
                    uint64_t task)
{
    begin(file, phase, ring, at);
    text(file, ",\"cat\":\"task\",\"id\":\"");
    number(file, task);
    text(file, "\",\"name\":\"");
}

static void write_start(struct trace_file *file, const struct trace_ring *ring, const struct trace_event *event,
                        const char *name)
{
    if (!trace_names_add(&file->names, event->task, name, (size_t)event->second)) return;
    on_task(file, "b", ring, event->at, event->task);
    name_of(file, event->task);
    text(file, "\",\"args\":{\"task\":");
    number(file, event->task);
    text(file, "}}");
}

static const char *const ends[] = {"", "", "", "completed", "failed", "cancelled", "withdrawn"};

static void write_end(struct trace_file *file, const struct trace_ring *ring, deadline_t at, struct trace_name *name,
                      const char *status)
{
    on_task(file, "e", ring, at, name->number);
    name_of(file, name->number);
    text(file, "\",\"args\":{\"status\":\"");
    text(file, status);
    text(file, "\"}}");
    name->ended = true;
}

static void end_task(struct trace_file *file, const struct trace_ring *ring, const struct trace_event *event)
{
    struct trace_name *name = trace_names_find(&file->names, event->task);
    bool known = event->what < sizeof(ends) / sizeof(*ends);
    if (name && !name->ended) write_end(file, ring, event->at, name, known ? ends[event->what] : "");
}

static void write_turn(struct trace_file *file, const struct trace_ring *ring, const struct trace_event *event)
{
    slice(file, ring, event);
    text(file, ",\"cat\":\"run\",\"name\":\"");
    name_of(file, event->task);
    text(file, "\",\"args\":{\"task\":");
    number(file, event->task);
    text(file, "}}");
    const struct trace_name *name = trace_names_find(&file->names, event->task);
    if (name && name->ended) trace_names_remove(&file->names, event->task);
}

static void write_poll(struct trace_file *file, const struct trace_ring *ring, const struct trace_event *event)
{
    slice(file, ring, event);
    text(file, event->what ? ",\"cat\":\"poll\",\"name\":\"sleep\"}" : ",\"cat\":\"poll\",\"name\":\"poll\"}");
}

// One wait of a task has one beginning, so both together identify it.
static void flow(struct trace_file *file, const char *phase, const struct trace_ring *ring, deadline_t at,
                 const struct trace_event *event)
{
    begin(file, phase, ring, at);
    text(file, ",\"cat\":\"wake\",\"name\":\"wake\",\"id\":\"");
    number(file, event->task);
    text(file, ".");
    signed_number(file, event->first);
    text(file, *phase == 'f' ? "\",\"bp\":\"e\"}" : "\"");
}

static void write_wake(struct trace_file *file, const struct trace_ring *ring, const struct trace_event *event)
{
    flow(file, "s", ring, event->at, event);
    text(file, ",\"args\":{\"task\":");
    number(file, event->task);
    text(file, ",\"by\":");
    number(file, event->second);
    text(file, "}}");
}

static void write_wait(struct trace_file *file, const struct trace_ring *ring, const struct trace_event *event)
{
    deadline_t ready = event->second ? (deadline_t)event->second : event->at;
    if (event->what != WAIT_YIELD && event->second) flow(file, "f", ring, event->at, event);
    on_task(file, "b", ring, event->first, event->task);
    text(file, wait_kind_names[event->what]);
    if (event->descriptor >= 0) {
        text(file, "\",\"args\":{\"descriptor\":");
        number(file, (uint64_t)event->descriptor);
        text(file, "}}");
    } else {
        text(file, "\"}");
    }
    on_task(file, "e", ring, event->what == WAIT_YIELD ? event->at : ready, event->task);
    text(file, wait_kind_names[event->what]);
    text(file, "\"}");
}

static void write_io(struct trace_file *file, const struct trace_ring *ring, const struct trace_event *event)
{
    begin(file, "i", ring, event->at);
    text(file, event->what ? ",\"s\":\"t\",\"cat\":\"io\",\"name\":\"write\""
                           : ",\"s\":\"t\",\"cat\":\"io\",\"name\":\"read\"");
    text(file, ",\"args\":{\"task\":");
    number(file, event->task);
    text(file, ",\"descriptor\":");
    signed_number(file, event->descriptor);
    text(file, event->first < 0 ? ",\"errno\":" : ",\"bytes\":");
    number(file, event->first < 0 ? -(uint64_t)event->first : (uint64_t)event->first);
    text(file, "}}");
}

static void write_event(struct trace_file *file, const struct trace_ring *ring, const struct trace_event *event,
                        const char *name)
{
    switch ((enum trace_kind)event->kind) {
    case TRACE_TURN: write_turn(file, ring, event); break;
    case TRACE_WAKE: write_wake(file, ring, event); break;
    case TRACE_WAIT: write_wait(file, ring, event); break;
    case TRACE_POLL: write_poll(file, ring, event); break;
    case TRACE_START: write_start(file, ring, event, name); break;
    case TRACE_END: end_task(file, ring, event); break;
    case TRACE_IO: write_io(file, ring, event); break;
    }
}

// ---- the file

void trace_file_begin(struct trace_file *file, int descriptor, const atomic_bool *stop)
{
    *file = (struct trace_file){
        .descriptor = own_descriptor(descriptor), .stop = stop, .process = getpid(), .began = deadline_now()};
    text(file, "[\n");
}

static void write_lost(struct trace_file *file, const struct trace_ring *ring, deadline_t now, const char *what,
                       uint64_t lost)
{
    begin(file, "i", ring, now);
    text(file, ",\"s\":\"t\",\"cat\":\"heddle\",\"name\":\"");
    text(file, what);
    text(file, "\",\"args\":{\"lost\":");
    number(file, lost);
    text(file, "}}");
}

static void write_ring(struct trace_file *file, const struct trace_ring *ring, deadline_t now)
{
    begin(file, "M", ring, now);
    text(file, ",\"name\":\"thread_name\",\"args\":{\"name\":\"");
    text_escaped(&file->text, ring->name, strlen(ring->name));
    text(file, ring->name[0] ? ", loop " : "loop ");
    number(file, ring->number);
    text(file, "\"}}");
    write_lost(file, ring, now, "events lost", atomic_load_explicit(&ring->lost, memory_order_relaxed));
}

size_t trace_file_take(struct trace_file *file, struct trace_ring *ring)
{
    int state = atomic_load_explicit(&ring->state, memory_order_acquire);
    if (state == RING_FREE) return 0;
    uint64_t read = atomic_load_explicit(&ring->read, memory_order_relaxed);
    uint64_t written = atomic_load_explicit(&ring->written, memory_order_acquire);
    size_t count = 0;
    for (; read < written; count++) {
        struct trace_event event = ring->events[read++ & (TRACE_EVENTS - 1)];
        char name[TRACE_NAME];
        size_t length = event.kind == TRACE_START ? (size_t)event.second : 0;
        for (size_t done = 0; done < length; done += sizeof(event)) {
            size_t piece = length - done < sizeof(event) ? length - done : sizeof(event);
            memcpy(name + done, &ring->events[read++ & (TRACE_EVENTS - 1)], piece);
        }
        write_event(file, ring, &event, name);
        atomic_store_explicit(&ring->read, read, memory_order_release);
    }
    if (state != RING_LEFT) return count;
    write_ring(file, ring, ring->left);
    atomic_store_explicit(&ring->state, RING_FREE, memory_order_release);
    return count;
}

static void end_all(struct trace_file *file, const struct trace_ring *ring, deadline_t now)
{
    for (size_t i = 0; i < file->names.bucket_count; i++) {
        for (struct trace_name *name = file->names.buckets[i]; name; name = name->next) {
            if (!name->ended) write_end(file, ring, now, name, "running");
        }
    }
}

void trace_file_end(struct trace_file *file, const struct trace *trace, deadline_t now)
{
    const struct trace_ring *rings = atomic_load(&trace->rings);
    for (const struct trace_ring *ring = rings; ring; ring = ring->next)
        if (atomic_load(&ring->state) == RING_USED) write_ring(file, ring, now);
    if (rings) end_all(file, rings, now);
    if (trace->lost) write_lost(file, rings, now, "loops lost", trace->lost);
    trace_names_free(&file->names);
    text(file, "\n]\n");
    trace_file_flush(file);
    int error = own_descriptor_close(&file->descriptor);
    if (!file->error) file->error = error;
}
