// An LD_PRELOAD library: reports closes of numbers that are not open. The second close of a descriptor is such a close
// as long as no other file has the number.
//
// WATCHED_CLOSES=path: a line for each of them, with its caller.
#define _GNU_SOURCE
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static void report(int descriptor)
{
    const char *path = getenv("WATCHED_CLOSES");
    int log = path ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (log < 0) return;
    void *frames[16];
    dprintf(log, "close(%d) in process %d: no such descriptor\n", descriptor, (int)getpid());
    backtrace_symbols_fd(frames, backtrace(frames, 16), log);
    syscall(SYS_close, log);
}

int close(int descriptor)
{
    int result = (int)syscall(SYS_close, descriptor);
    int error = errno;
    if (result < 0 && error == EBADF && descriptor >= 0) report(descriptor);
    errno = error;
    return result;
}
