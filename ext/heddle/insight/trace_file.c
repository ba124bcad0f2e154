#include "insight/trace_file.h"

#include "loop/wait.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

// ---- text

void trace_file_flush(struct trace_file *file)
{
    size_t done = 0;
    while (done < file->used && !file->error) {
        ssize_t count = write(file->descriptor, file->bytes + done, file->used - done);
        if (count >= 0) {
            done += (size_t)count;
        } else if (errno != EINTR) {
            file->error = errno;
        }
    }
    file->used = 0;
}

// An object is at most this long: each is begun with so much room.
enum { LONGEST = 2048 };

static void text(struct trace_file *file, const char *bytes)
{
    size_t length = strlen(bytes);
    memcpy(file->bytes + file->used, bytes, length);
    file->used += length;
}

static void number(struct trace_file *file, uint64_t value)
{
    char digits[20];
    int count = 0;
    do {
        digits[count++] = (char)('0' + value % 10);
    } while (value /= 10);
    while (count)
        file->bytes[file->used++] = digits[--count];
}

static void signed_number(struct trace_file *file, int64_t value)
{
    if (value < 0) file->bytes[file->used++] = '-';
    number(file, value < 0 ? -(uint64_t)value : (uint64_t)value);
}

// Nanoseconds, as microseconds with three digits behind the point.
static void microseconds(struct trace_file *file, int64_t span)
{
    if (span < 0) span = 0;
    number(file, (uint64_t)span / 1000);
    file->bytes[file->used++] = '.';
    for (int64_t digit = 100; digit; digit /= 10)
        file->bytes[file->used++] = (char)('0' + span / digit % 10);
}

static size_t sequence_length(const unsigned char *at, size_t left)
{
    size_t length = *at < 0x80                  ? 1
                    : *at >= 0xC2 && *at < 0xE0 ? 2
                    : *at >= 0xE0 && *at < 0xF0 ? 3
                    : *at >= 0xF0 && *at < 0xF5 ? 4
                                                : 0;
    if (!length || length > left) return 0;
    for (size_t i = 1; i < length; i++) {
        if ((at[i] & 0xC0) != 0x80) return 0;
    }
    bool overlong = (*at == 0xE0 && at[1] < 0xA0) || (*at == 0xF0 && at[1] < 0x90);
    bool impossible = (*at == 0xED && at[1] > 0x9F) || (*at == 0xF4 && at[1] > 0x8F);
    return overlong || impossible ? 0 : length;
}

// A JSON string's contents: what is no UTF-8, or a control character, becomes a question mark.
static void quoted(struct trace_file *file, const char *bytes, size_t length)
{
    for (size_t i = 0, step; i < length; i += step ? step : 1) {
        const unsigned char *at = (const unsigned char *)bytes + i;
        step = sequence_length(at, length - i);
        if (!step || *at < 0x20) {
            file->bytes[file->used++] = '?';
            continue;
        }
        if (*at == '"' || *at == '\\') file->bytes[file->used++] = '\\';
        memcpy(file->bytes + file->used, at, step);
        file->used += step;
    }
}

// Begins an object: of that phase, on the loop's track.
static void begin(struct trace_file *file, const char *phase, const struct trace_ring *ring, deadline_t at)
{
    if (file->used + LONGEST > sizeof(file->bytes)) trace_file_flush(file);
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
        quoted(file, name->text, name->length);
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

static const char *const waits[WAIT_KINDS] = {
    [WAIT_BLOCK] = "wait",    [WAIT_SLEEP] = "sleep",   [WAIT_DESCRIPTOR] = "I/O",
    [WAIT_SELECT] = "select", [WAIT_MEMBER] = "select", [WAIT_HANG_UP] = "hangup",
    [WAIT_NATIVE] = "name",   [WAIT_YIELD] = "yield",   [WAIT_IDLE] = "idle"};

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
    text(file, waits[event->what]);
    if (event->descriptor >= 0) {
        text(file, "\",\"args\":{\"descriptor\":");
        number(file, (uint64_t)event->descriptor);
        text(file, "}}");
    } else {
        text(file, "\"}");
    }
    on_task(file, "e", ring, event->what == WAIT_YIELD ? event->at : ready, event->task);
    text(file, waits[event->what]);
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

void trace_file_begin(struct trace_file *file, int descriptor)
{
    *file = (struct trace_file){.descriptor = descriptor, .process = getpid(), .began = deadline_now()};
    text(file, "[\n");
}

size_t trace_file_take(struct trace_file *file, struct trace_ring *ring)
{
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
    return count;
}

static void write_ring(struct trace_file *file, const struct trace_ring *ring, deadline_t now)
{
    begin(file, "M", ring, now);
    text(file, ",\"name\":\"thread_name\",\"args\":{\"name\":\"");
    quoted(file, ring->name, strlen(ring->name));
    text(file, ring->name[0] ? ", loop " : "loop ");
    number(file, ring->number);
    text(file, "\"}}");
    uint64_t lost = atomic_load_explicit(&ring->lost, memory_order_relaxed);
    begin(file, "i", ring, now);
    text(file, ",\"s\":\"t\",\"cat\":\"heddle\",\"name\":\"events lost\",\"args\":{\"lost\":");
    number(file, lost);
    text(file, "}}");
}

static void end_all(struct trace_file *file, const struct trace_ring *ring, deadline_t now)
{
    for (size_t i = 0; i < file->names.bucket_count; i++) {
        for (struct trace_name *name = file->names.buckets[i]; name; name = name->next) {
            if (!name->ended) write_end(file, ring, now, name, "running");
        }
    }
}

void trace_file_end(struct trace_file *file, struct trace_ring *rings, deadline_t now)
{
    for (const struct trace_ring *ring = rings; ring; ring = ring->next)
        write_ring(file, ring, now);
    if (rings) end_all(file, rings, now);
    trace_names_free(&file->names);
    text(file, "\n]\n");
    trace_file_flush(file);
    if (close(file->descriptor) < 0 && !file->error && errno != EINTR) file->error = errno;
}
