#include "insight/thread_usage.h"

#include <time.h>

int64_t thread_own_cpu(void)
{
    struct timespec used;
    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used) != 0) return 0;
    return (int64_t)used.tv_sec * 1000000000 + used.tv_nsec;
}

#ifdef HEDDLE_HAS_THREAD_SIGNALS

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

// The clock of any thread of this process, as pthread_getcpuclockid makes it of a pthread_t: part of Linux's ABI.
int64_t thread_cpu(int thread)
{
    clockid_t clock = (clockid_t)(~(unsigned)thread << 3 | 6);
    struct timespec used;
    if (!thread || clock_gettime(clock, &used) != 0) return -1;
    return (int64_t)used.tv_sec * 1000000000 + used.tv_nsec;
}

// Reads a file of the thread's folder in /proc as text. Returns whether it is there.
static bool read_file(int thread, const char *name, char *text, size_t size)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/task/%d/%s", thread, name);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return false;
    ssize_t length = read(file, text, size - 1);
    close(file);
    if (length <= 0) return false;
    text[length] = '\0';
    return true;
}

int64_t thread_delay(int thread)
{
    char text[128], *end;
    if (!thread || !read_file(thread, "schedstat", text, sizeof(text))) return -1;
    strtoll(text, &end, 10); // CPU time
    return *end == ' ' ? strtoll(end, NULL, 10) : -1;
}

// Where the kernel does not say which call it is (a kernel without that file), a call.
static enum thread_state waiting_state(int thread)
{
    char text[128];
    if (!read_file(thread, "syscall", text, sizeof(text))) return THREAD_CALL;
    return strtol(text, NULL, 10) == SYS_futex ? THREAD_LOCK : THREAD_CALL;
}

enum thread_state thread_state(int thread)
{
    char text[512];
    if (!thread || !read_file(thread, "stat", text, sizeof(text))) return THREAD_UNKNOWN;
    const char *end = strrchr(text, ')'); // of the name, which may contain anything
    if (!end || end[1] != ' ') return THREAD_UNKNOWN;
    switch (end[2]) {
    case 'R': return THREAD_READY;
    case 'S':
    case 'D': return waiting_state(thread);
    case 'T':
    case 't': return THREAD_STOPPED;
    default: return THREAD_UNKNOWN;
    }
}

struct entry { // struct linux_dirent64: readdir allocates
    uint64_t inode;
    int64_t offset;
    unsigned short length;
    unsigned char type;
    char name[];
};

size_t thread_usages(struct thread_usage *usages, size_t room)
{
    _Alignas(struct entry) char entries[4096];
    int folder = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return 0;
    size_t count = 0;
    long length;
    while (count < room && (length = syscall(SYS_getdents64, folder, entries, sizeof(entries))) > 0) {
        for (long at = 0; at < length && count < room;) {
            const struct entry *entry = (const struct entry *)(entries + at);
            at += entry->length;
            int thread = atoi(entry->name);
            if (thread) usages[count++] = (struct thread_usage){thread, thread_cpu(thread)};
        }
    }
    close(folder);
    return count;
}

#else

int64_t thread_cpu(int thread)
{
    (void)thread;
    return -1;
}

int64_t thread_delay(int thread)
{
    (void)thread;
    return -1;
}

enum thread_state thread_state(int thread)
{
    (void)thread;
    return THREAD_UNKNOWN;
}

size_t thread_usages(struct thread_usage *usages, size_t room)
{
    (void)usages, (void)room;
    return 0;
}

#endif
