#include "insight/insight.h"

#include "loop/wait.h"
#include "os/peer.h"

#include <string.h>

static void seconds(struct text *text, const char *key, int64_t nanoseconds)
{
    if (nanoseconds < 0) nanoseconds = 0;
    text_format(text, ",\"%s\":%.6f", key, (double)nanoseconds / 1e9);
}

static void field(struct text *text, const char *key, const char *value)
{
    text_format(text, ",\"%s\":", key);
    text_string(text, value, strlen(value));
}

void rows_task(struct text *text, const struct task_row *row, deadline_t now)
{
    static const char *const states[] = {"queued", "running", "waiting", "ready"};
    text_format(text, "{\"task\":%llu,\"parent\":%llu,\"loop\":%llu,\"state\":\"%s\"", (unsigned long long)row->number,
                (unsigned long long)row->parent, (unsigned long long)row->loop, states[row->state & 3]);
    seconds(text, "for", now - row->since);
    if (row->name[0]) {
        text_format(text, ",\"name\":");
        text_string(text, row->name, strnlen(row->name, sizeof(row->name)));
    }
    if (row->due != DEADLINE_NEVER) seconds(text, "left", row->due - now);
    if (row->state == RECORD_WAITING && row->kind < WAIT_KINDS && wait_kind_names[row->kind]) {
        char words[WAIT_WORDS], peer[PEER_NAME] = "";
        if (row->kind == WAIT_DESCRIPTOR) peer_text(row->descriptor, peer);
        field(text, "wait", wait_kind_names[row->kind]);
        wait_words(words, row->kind, row->descriptor, row->events, peer);
        field(text, "waits_for", words);
        if (row->kind == WAIT_DESCRIPTOR) {
            text_format(text, ",\"descriptor\":%d", row->descriptor);
            field(text, "events", wait_events_name(row->events));
            if (peer[0]) field(text, "peer", peer);
        }
    }
    seconds(text, "ran", row->ran + (row->state == RECORD_RUNNING ? now - row->since : 0));
    seconds(text, "was_ready", row->was_ready + (row->state == RECORD_READY ? now - row->since : 0));
    text_format(text, ",\"turns\":%llu}\n", (unsigned long long)row->turns);
}

void rows_loop(struct text *text, const struct loop_row *row, deadline_t now)
{
    text_format(text, "{\"loop\":%llu,\"thread\":", (unsigned long long)row->number);
    text_string(text, row->name, strnlen(row->name, sizeof(row->name)));
    field(text, "backend", row->backend);
    text_format(text, ",\"thread_id\":%lld,\"tasks\":%llu,\"ready\":%llu,\"switches\":%llu", (long long)row->thread,
                (unsigned long long)row->tasks, (unsigned long long)row->ready, (unsigned long long)row->switches);
    seconds(text, "slept", row->slept);
    if (row->asleep) seconds(text, "asleep", now - row->asleep);
    if (row->began && !row->asleep) {
        text_format(text, ",\"runs\":%llu", (unsigned long long)row->task);
        seconds(text, "runs_for", now - row->began);
    }
    text_add(text, "}\n", 2);
}
