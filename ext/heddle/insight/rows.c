#include "insight/insight.h"

#include "loop/wait.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

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

// The other end of a socket. Says nothing of what has none with a name.
static void peer(struct text *text, int descriptor)
{
    union {
        struct sockaddr any;
        struct sockaddr_in ipv4;
        struct sockaddr_in6 ipv6;
        struct sockaddr_un local;
    } name;
    socklen_t length = sizeof(name);
    char address[INET6_ADDRSTRLEN], whole[INET6_ADDRSTRLEN + 16];
    if (getpeername(descriptor, &name.any, &length) != 0) return;
    switch (name.any.sa_family) {
    case AF_INET:
        inet_ntop(AF_INET, &name.ipv4.sin_addr, address, sizeof(address));
        snprintf(whole, sizeof(whole), "%s:%d", address, ntohs(name.ipv4.sin_port));
        field(text, "peer", whole);
        break;
    case AF_INET6:
        inet_ntop(AF_INET6, &name.ipv6.sin6_addr, address, sizeof(address));
        snprintf(whole, sizeof(whole), "[%s]:%d", address, ntohs(name.ipv6.sin6_port));
        field(text, "peer", whole);
        break;
    case AF_UNIX: {
        size_t before = offsetof(struct sockaddr_un, sun_path);
        if (length <= before || !name.local.sun_path[0]) return;
        text_format(text, ",\"peer\":");
        text_string(text, name.local.sun_path, strnlen(name.local.sun_path, length - before));
        break;
    }
    default: break;
    }
}

static const char *wanted(int events)
{
    switch (events & (POLLIN | POLLOUT)) {
    case POLLIN: return "readable";
    case POLLOUT: return "writable";
    case POLLIN | POLLOUT: return "readable or writable";
    default: return "urgent";
    }
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
        field(text, "wait", wait_kind_names[row->kind]);
        if (row->kind == WAIT_DESCRIPTOR) {
            text_format(text, ",\"descriptor\":%d", row->descriptor);
            field(text, "events", wanted(row->events));
            peer(text, row->descriptor);
        }
    }
    seconds(text, "ran", row->ran + (row->state == RECORD_RUNNING ? now - row->since : 0));
    seconds(text, "ready", row->was_ready + (row->state == RECORD_READY ? now - row->since : 0));
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
