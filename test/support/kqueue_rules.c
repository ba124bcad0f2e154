// Whether a kqueue follows the rules of kevent(2) on which a backend of the loop would stand (ADR 60): prints those
// that it breaks, and fails if there are any.
//
//   cc kqueue_rules.c                                             on macOS and the BSDs
//   cc kqueue_rules.c $(pkg-config --cflags --libs libkqueue)     on Linux
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <sys/event.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PIPES = 4, TIMES = 50 };

static int queue, broken;

static void rule(bool kept, const char *text)
{
    if (kept) return;
    printf("broken: %s\n", text);
    broken++;
}

// Returns 0 or an errno; -1 for a failure without one.
static int change(int descriptor, int filter, int flags)
{
    errno = 0;
    struct kevent change;
    EV_SET(&change, (uintptr_t)descriptor, filter, flags, 0, 0, 0);
    if (kevent(queue, &change, 1, NULL, 0, NULL) >= 0) return 0;
    return errno ? errno : -1;
}

static int ready(void)
{
    struct kevent events[8];
    struct timespec span = {0, 100000000};
    return kevent(queue, NULL, 0, events, 8, &span);
}

static void two_filters(void)
{
    int ends[2];
    socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
    int reading = change(ends[0], EVFILT_READ, EV_ADD | EV_ONESHOT);
    int writing = change(ends[0], EVFILT_WRITE, EV_ADD | EV_ONESHOT);
    rule(!reading && !writing, "a descriptor may have a filter for reading and one for writing");
    rule(ready() == 1, "a socket with room in its buffer is ready for writing");
}

static void added_twice(void)
{
    int ends[2];
    socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
    change(ends[0], EVFILT_READ, EV_ADD | EV_ONESHOT);
    rule(change(ends[0], EVFILT_READ, EV_ADD | EV_ONESHOT) == 0, "adding a filter again modifies it");
}

static void bad_descriptor(void)
{
    rule(change(1000, EVFILT_READ, EV_ADD) == EBADF, "a descriptor that is not open is EBADF");
}

static void closed(void)
{
    int ends[2], others[2];
    pipe(ends);
    change(ends[0], EVFILT_READ, EV_ADD | EV_ONESHOT);
    close(ends[0]);
    pipe(others); // the first end has the number that was closed
    rule(change(others[0], EVFILT_READ, EV_ADD | EV_ONESHOT) == 0, "closing a descriptor removes its filters");
    write(others[1], "x", 1);
    rule(ready() == 1, "the next file of that number has filters of its own");
}

static bool child_lost_a_pipe(void)
{
    int ends[PIPES][2], status = 1;
    close(kqueue());
    for (int i = 0; i < PIPES; i++)
        pipe(ends[i]);
    pid_t child = fork();
    if (child == 0) {
        char byte;
        for (int i = 0; i < PIPES; i++) {
            if (write(ends[i][1], "x", 1) != 1 || read(ends[i][0], &byte, 1) != 1) _exit(1);
        }
        _exit(0);
    }
    waitpid(child, &status, 0);
    for (int i = 0; i < PIPES; i++)
        close(ends[i][0]), close(ends[i][1]);
    return status != 0;
}

static void forked(void)
{
    bool lost = false;
    for (int i = 0; i < TIMES && !lost; i++)
        lost = child_lost_a_pipe();
    rule(!lost, "a child of fork has its parent's pipes");
}

static void closed_queues(void)
{
    int before = dup(0);
    close(before);
    for (int i = 0; i < 100; i++)
        close(kqueue());
    int after = dup(0);
    rule(after == before, "a queue that is closed leaves no descriptor behind");
}

int main(void)
{
    closed_queues();
    queue = kqueue();
    if (queue < 0) return perror("kqueue"), 2;
    two_filters();
    close(queue);
    queue = kqueue();
    added_twice();
    bad_descriptor();
    closed();
    forked();
    printf("%d rules broken\n", broken);
    return broken > 0;
}
